/** The page Talk: a conversation, its composer, approvals and questions. */
import { useEffect, useRef, useState } from "./vendor-preact-hooks.js";
import { changed, conversation, get, listUnsent, may, newId, openConversation, post, request, send, state, toast, useNews, useTopic } from "./data.js";
import { watch } from "./feed.js";
import { clock, Command, Diff, Guard, html, Icon, Menu, State, useClock } from "./ui.js";
import { T } from "./text.js";

const DRAFT = "hermes-draft-";
const NARROW = 720;
/** The log and Markdown are loaded with the first conversation. */
const loadLog = () => import("./log.js");

/** Does what one of the actions says; their module is loaded with the first. */
const act = (name, conv, words) => import("./actions.js").then(({ ACTIONS, runAction }) => runAction(ACTIONS.find(a => a.name === name), conv, words));

const branch = (conv, messages) => import("./actions.js").then(module => module.branch(conv, messages)).catch(error => toast(error.message));

function sentence(text) {
  return text ? text[0].toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".") : "";
}

function Approval({ conv, asked }) {
  useClock(1000);
  const [always, setAlways] = useState(false);
  const [failure, setFailure] = useState("");
  const [sent, setSent] = useState(false);
  const answer = async choice => {
    setSent(true);
    try { await post(`api/sessions/${conv.id}/approvals/${asked.id}`, { choice, digest: asked.digest }); }
    catch (error) { setFailure(error.message); setSent(false); }
  };
  const onKey = event => {
    const choice = { a: "once", d: "deny" }[event.key];
    if (choice && !event.ctrlKey && !event.metaKey && !event.altKey && !sent) answer(choice);
  };
  const has = choice => asked.choices.includes(choice);
  return html`<section class="card ask" role="group" aria-label=${asked.command ? T.approve : T.approveTool(asked.tool)} tabindex="-1" onKeyDown=${onKey}>
    <header><${State} kind="warn" label=${T.waiting} /><h3>${asked.command ? T.approve : T.approveTool(asked.tool)}</h3>
      <span class="dim" role="timer">${T.deniedIn(clock(asked.expires_at - Date.now() / 1000))}</span></header>
    <p class="dim">${sentence(asked.reason)} ${asked.command && !/sandbox/.test(asked.reason) ? T.sandbox(asked.sandbox) : ""}</p>
    ${!asked.command && asked.diff ? html`<${Diff} lines=${asked.diff.split("\n")} />` : html`<${Command} text=${asked.command || asked.arguments} />`}
    ${always && html`<div class="rules"><p>${T.alwaysSaves}</p>${asked.rules.map(rule => html`<code>${rule}</code>`)}</div>`}
    ${failure && html`<p class="bad" role="alert">${failure}</p>`}
    <div class="row">
      ${has("once") && html`<button class="primary" disabled=${sent} onClick=${() => answer("once")}>${T.once}<kbd aria-hidden="true">A</kbd></button>`}
      ${has("session") && html`<button disabled=${sent} onClick=${() => answer("session")}>${T.session}</button>`}
      ${has("always") && (always ? html`<button disabled=${sent} onClick=${() => answer("always")}>${T.confirmAlways}</button>`
        : html`<button disabled=${sent} onClick=${() => setAlways(true)}>${T.always}</button>`)}
      <span class="space"></span><button disabled=${sent} onClick=${() => answer("deny")}>${T.deny}<kbd aria-hidden="true">D</kbd></button></div></section>`;
}

function Question({ conv, asked }) {
  const [text, setText] = useState("");
  const answer = value => post(`api/sessions/${conv.id}/questions/${asked.id}`, { text: value }).catch(error => toast(error.message));
  return html`<section class="card ask" role="group" aria-label=${T.question}><header><${State} kind="warn" label=${T.waiting} /><h3>${T.question}</h3></header>
    <p>${asked.text}</p><div class="row wrap">${asked.choices.map(choice => html`<button onClick=${() => answer(choice)}>${choice}</button>`)}</div>
    <form class="row" onSubmit=${event => { event.preventDefault(); if (text.trim()) answer(text); }}>
      <input aria-label=${T.answer} placeholder=${T.answerHint} value=${text} onInput=${event => setText(event.target.value)} />
      <button class="primary">${T.answer}</button><button type="button" onClick=${() => answer(null)}>${T.decline}</button></form></section>`;
}

/** Guidance that the running turn has not read yet. */
function Steered({ turn }) {
  return html`<div class="queued row"><span class="chip">${T.steered}</span><span class="ellipsis">${turn.text}</span></div>`;
}

function Queued({ conv, turn }) {
  const [text, setText] = useState(null);
  const path = `api/sessions/${conv.id}/turns/${turn.id}`;
  const run = work => work.catch(error => toast(error.message));
  if (text !== null) return html`<form class="queued row" onSubmit=${event => { event.preventDefault(); run(request("PATCH", path, { content: text })); setText(null); }}>
    <input aria-label=${T.edit} value=${text} onInput=${event => setText(event.target.value)} /><button>${T.save}</button></form>`;
  return html`<div class="queued row"><span class="chip">${T.queued}</span><span class="ellipsis">${turn.text}</span><span class="space"></span>
    <button class="quiet" onClick=${() => setText(turn.text)}>${T.edit}</button>
    <button class="quiet" onClick=${() => run(request("DELETE", path))}>${T.remove}</button></div>`;
}

function useUploads() {
  const [files, setFiles] = useState([]);
  const add = async list => {
    for (const file of [...list]) { // a copy: the list empties when the field does
      try {
        const saved = await request("POST", "api/uploads", file, { raw: true,
          headers: { "X-File-Name": encodeURIComponent(file.name), "Content-Type": file.type || "application/octet-stream" } });
        setFiles(before => [...before, saved].slice(0, 10));
      } catch (error) { toast(error.message); }
    }
  };
  return { files, add, put: setFiles, remove: id => setFiles(before => before.filter(f => f.id !== id)) };
}

async function ensureConversation(id) {
  if (id) return conversation(id);
  const made = await post("api/sessions", {});
  state.sessions.set(made.id, made);
  const conv = conversation(made.id);
  conv.loaded = true;
  location.replace(`#/c/${made.id}`);
  watch([made.id]);
  return conv;
}

/** The completions of the text before the caret; their module is loaded with the first `/` or `@`. */
function useCompletions(text, conv, area) {
  const [module, setModule] = useState(null);
  const [files, setFiles] = useState([]);
  const [chosen, setChosen] = useState(0);
  const [closed, setClosed] = useState("");
  const isWanted = /^\/|(^|\s)@\S*$/.test(text) && closed !== text;
  useEffect(() => { if (isWanted && !module) import("./completion.js").then(setModule, () => {}); }, [isWanted]);
  const asksForFiles = isWanted && text.includes("@");
  const wanted = asksForFiles ? (/(?:^|\s)@(\S*)$/.exec(text) || [])[1] : undefined;
  useEffect(() => {
    if (!module || wanted === undefined) return undefined;
    let current = true;
    module.listFiles(conv, wanted).then(found => current && setFiles(found), () => {});
    return () => { current = false; };
  }, [module, wanted, conv && conv.total]);
  useEffect(() => { setChosen(0); }, [text]);
  const caret = area.current ? area.current.selectionStart : text.length;
  const found = isWanted && module ? module.findCompletions(text, caret, conv, files) : { start: 0, rows: [] };
  return { ...found, caret, chosen, setChosen, close: () => setClosed(text), View: module && module.Completions };
}

/** A key while completions are shown: true when it was for them. */
function takeKey(event, found, pick) {
  const { rows, chosen, setChosen, close } = found;
  if (!rows.length || event.isComposing) return false;
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) setChosen((chosen + step + rows.length) % rows.length);
  else if (event.key === "Escape") close();
  else if (event.key === "Tab" || event.key === "Enter" && !event.shiftKey && !rows.some(row => row.text.trim() === event.target.value.trim())) pick(rows[chosen]);
  else return false;
  event.preventDefault();
  return true;
}

function useDraft(key, area) {
  const [text, setText] = useState(() => localStorage.getItem(key) || "");
  useEffect(() => { setText(localStorage.getItem(key) || ""); }, [key]);
  useEffect(() => {
    const field = area.current;
    field.style.height = "auto";
    field.style.height = `${Math.min(260, field.scrollHeight)}px`;
  }, [text]);
  const write = value => {
    setText(value);
    if (value) localStorage.setItem(key, value); else localStorage.removeItem(key);
  };
  return [text, write];
}

const isCommand = text => /^\/[a-z-]+(\s|$)/.test(text);

function Composer({ id, conv }) {
  const area = useRef(null);
  const picker = useRef(null);
  const [text, write] = useDraft(DRAFT + (id || "new"), area);
  const { files, add, put, remove } = useUploads();
  const busy = Boolean(conv && conv.live.busy);
  const completions = useCompletions(text, conv, area);
  const pick = row => {
    const field = area.current;
    const next = text.slice(0, completions.start) + row.text + text.slice(completions.caret);
    const caret = completions.start + row.text.length;
    field.value = next;
    field.setSelectionRange(caret, caret);
    write(next);
  };
  const submit = async mode => {
    const content = text.trim();
    if (!content && !files.length) return;
    if (isCommand(content)) {
      write("");
      if (!await (await import("./actions.js")).runSlash(content, conv)) write(content);
      return;
    }
    const item = { id: newId(), text: content.replace(/^\/\//, "/"), uploads: files.map(f => f.id), busy: mode };
    write("");
    put([]);
    try { await send(await ensureConversation(id), item); } catch (error) { write(content); put(files); toast(error.message); }
  };
  const onKey = event => {
    if (takeKey(event, completions, pick) || event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submit("queue");
  };
  const onPaste = event => { if (event.clipboardData.files.length) { event.preventDefault(); add(event.clipboardData.files); } };
  const onDrop = event => { event.preventDefault(); add(event.dataTransfer.files); };
  const stop = () => post(`api/sessions/${id}/stop`).catch(error => toast(error.message));
  const shown = completions.rows.length > 0;
  return html`<div class="composer" onDrop=${onDrop} onDragOver=${event => event.preventDefault()}>
    ${shown && html`<${completions.View} rows=${completions.rows} chosen=${completions.chosen} onPick=${pick} />`}
    <textarea ref=${area} rows="1" aria-label=${T.message} placeholder=${busy ? innerWidth < NARROW ? T.placeholderNarrow : T.placeholderBusy : T.placeholder} value=${text} aria-autocomplete="list"
      aria-controls=${shown ? "completions" : undefined} aria-activedescendant=${shown ? `completion-${completions.chosen}` : undefined}
      onInput=${event => write(event.target.value)} onKeyDown=${onKey} onPaste=${onPaste}></textarea>
    ${files.length > 0 && html`<div class="row wrap">${files.map(file => html`<button class="chip" onClick=${() => remove(file.id)} title=${T.remove}>${file.name} ×</button>`)}</div>`}
    <div class="row"><input ref=${picker} type="file" multiple hidden onChange=${event => { add(event.target.files); event.target.value = ""; }} />
      <button class="quiet" aria-label=${T.attach} onClick=${() => picker.current.click()}><${Icon} name="plus" /></button>
      ${conv && state.sessions.get(conv.id) && html`<${Pickers} conv=${conv} session=${state.sessions.get(conv.id)} />`}<span class="space"></span>
      ${busy ? html`<button onClick=${() => submit("steer")}>${T.steer}</button><button class="danger" onClick=${stop}>${T.stop}</button>
        <button class="primary" onClick=${() => submit("queue")}>${T.queue}</button>`
        : html`<button class="primary" onClick=${() => submit("queue")}>${T.send}</button>`}</div></div>`;
}

/** The model and the effort of a conversation; a choice holds from the next call on. */
function Pickers({ conv, session }) {
  const [models, setModels] = useState(null);
  const load = () => { if (!models && may("admin")) get("api/models").then(found => setModels(found.data), () => setModels([])); };
  const other = event => {
    event.preventDefault();
    const name = event.target.elements.name.value.trim();
    if (name) act("model", conv, name);
  };
  return html`<span class="pickers" onPointerEnter=${load} onFocusIn=${load}>
    <${Menu} kind="chip" label=${session.model || T.model} name=${`${T.model}: ${session.model || "–"}`}>
      ${(models || []).slice(0, 12).map(row => html`<button class="quiet ellipsis" aria-pressed=${row.model.endsWith(`:${session.model}`)} title=${row.about} onClick=${() => act("model", conv, row.model)}>${row.model}</button>`)}
      <form onSubmit=${other}><input name="name" aria-label=${T.otherModel} placeholder=${T.otherModel} /></form><//>
    <${Menu} kind="chip" label=${`${T.effort} ${conv.effort || ""}`} name=${`${T.effort}: ${conv.effort || T.defaultEffort}`}>
      ${T.efforts.map(level => html`<button class="quiet" aria-pressed=${level === conv.effort} onClick=${() => act("reasoning", conv, level)}>${level}</button>`)}<//></span>`;
}

function Header({ conv, onPanel, panelOpen }) {
  useTopic("sessions");
  const session = conv && state.sessions.get(conv.id);
  const title = session ? session.title || T.untitled : T.newConversation;
  return html`<header class="top"><h1 class="ellipsis">${title}</h1>
    ${session && session.cwd && html`<span class="chip ellipsis wide" title=${session.cwd}>${session.cwd.split("/").slice(-2).join("/")}</span>`}
    <span class="space"></span>
    ${conv && conv.live.busy && html`<span class="dim" role="status"><${State} kind="running" label=${T.running} /> ${T.working(conv.live.step)}</span>`}
    ${conv && html`<button class="quiet wide" onClick=${() => branch(conv, conv.total)}>${T.branch}</button>
      <span class="wide"><${Menu} label=${T.export} name=${T.export}>${Object.entries(T.formats).map(([format, label]) => html`<button class="quiet" onClick=${() => act("export", conv, format)}>${label}</button>`)}<//></span>
      <${Menu} label="⋯" name=${T.more}>${["retry", "undo", "compress", "find"].map(name => html`<button class="quiet" disabled=${name !== "find" && (conv.live.busy || !conv.total)}
        onClick=${() => act(name, conv)}>${T.actions[name].label}<span class="dim"> ${T.actions[name].hint}</span></button>`)}
        ${Object.entries(T.formats).map(([format, label]) => html`<button class="quiet narrow" onClick=${() => act("export", conv, format)}>${T.export}: ${label}</button>`)}<//>
      <button class="quiet" aria-label=${T.panel} aria-pressed=${panelOpen} onClick=${onPanel}><${Icon} name="panel" /></button>`}</header>`;
}

function Notes({ conv }) {
  useTopic("sessions"); // they say what became of a turn
  const session = state.sessions.get(conv.id);
  const { live, ended, notice } = conv;
  const isElsewhere = session && session.elsewhere && !live.busy;
  const goOn = () => send(conv, { id: newId(), text: T.goOnText, uploads: [], busy: "queue" }).catch(e => toast(e.message));
  return html`${live.busy && !live.partial.text && !live.partial.tools.length && html`<p class="thinking dim"><${State} kind="running" label=${T.running} /> ${notice || "…"}</p>`}
    ${listUnsent(conv).map(item => html`<article class="you unsent" aria-label=${T.you}><div class="bubble">${item.text}</div><span class="dim">${item.waits ? T.unsent : T.sending}</span></article>`)}
    ${ended && ended.error && html`<p class="failure" role="alert">${ended.error} ${!live.busy && html`<button onClick=${() => act("retry", conv)}>${T.regenerate}</button>`}</p>`}
    ${!ended && !live.busy && session && session.state === "interrupted" && html`<p class="failure">${T.interrupted} <button onClick=${goOn}>${T.goOn}</button></p>`}
    ${!ended && !live.busy && session && session.state === "failed" && html`<p class="failure">${T.lastFailed} <button onClick=${() => act("retry", conv)}>${T.regenerate}</button></p>`}
    ${isElsewhere && html`<p class="dim">${T.elsewhere} <button onClick=${() => branch(conv, conv.total)}>${T.branch}</button></p>`}`;
}

/** A part of the page whose module is loaded when it is first shown. */
function useModule(isWanted, load) {
  const [module, setModule] = useState(null);
  useEffect(() => { if (isWanted && !module) load().then(setModule, error => toast(String(error))); }, [isWanted]);
  return isWanted ? module : null;
}

function Foot({ conv, id }) {
  return html`<div class="foot">${conv && conv.live.approvals.map(asked => html`<${Approval} key=${asked.id} conv=${conv} asked=${asked} />`)}
    ${conv && conv.live.questions.map(asked => html`<${Question} key=${asked.id} conv=${conv} asked=${asked} />`)}
    ${conv && conv.live.turns.filter(t => t.state === "steered").map(turn => html`<${Steered} key=${turn.id} turn=${turn} />`)}
    ${conv && conv.live.turns.filter(t => t.state === "queued").map(turn => html`<${Queued} key=${turn.id} conv=${conv} turn=${turn} />`)}
    <${Composer} key="composer" id=${id} conv=${conv} /></div>`;
}

/** @param {{id: string, seq?: number}} props `seq`: the message to open at */
export function Talk({ id, seq }) {
  useTopic(id || "app");
  const conv = id ? conversation(id) : null;
  const [panel, setPanel] = useState(() => innerWidth >= 1100);
  const log = useModule(Boolean(id), loadLog);
  const side = useModule(panel && Boolean(id), () => import("./panel.js"));
  const find = conv && conv.find;
  const finder = useModule(Boolean(find), () => import("./find.js"));
  const setFind = value => { conv.find = value; changed(conv.id); };
  const [attempt, setAttempt] = useState(0);
  const again = () => setAttempt(n => n + 1);
  useNews("hello", () => { if (conv && conv.error) again(); });
  useEffect(() => {
    if (!id) { watch([]); return undefined; }
    let current = true;
    openConversation(id).then(found => current && watch(found.error ? [] : [id]));
    return () => { current = false; };
  }, [id, attempt]);
  useEffect(() => { if (id && seq !== undefined) Promise.all([loadLog(), openConversation(id)]).then(([{ showMessage }]) => showMessage(conv, seq)).catch(() => {}); }, [id, seq]);
  if (conv && conv.error) return html`<main class="main"><${Header} conv=${null} /><p class="failure" role="alert">${conv.error.message} <button onClick=${again}>${T.retry}</button></p></main>`;
  return html`<main id="main" class="main talk"><div class="center"><${Header} conv=${conv} onPanel=${() => setPanel(!panel)} panelOpen=${panel} />
    ${finder && html`<${finder.FindBar} key=${id} conv=${conv} words=${find.words} onClose=${() => setFind(null)} />`}
    ${conv ? log && html`<${log.Log} key=${id} conv=${conv} onBranch=${n => branch(conv, n)} onRetry=${() => act("retry", conv)} onFind=${() => setFind({ words: "" })}><${Notes} conv=${conv} /><//>`
      : html`<div class="welcome"><${Icon} name="mark" /><p>${T.empty}</p></div>`}
    <${Foot} conv=${conv} id=${id} /></div>
    ${side && conv && conv.loaded && html`<${Guard}><${side.Panel} conv=${conv} onClose=${() => setPanel(false)} /><//>`}</main>`;
}
