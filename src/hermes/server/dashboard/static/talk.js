/** The page Talk: a conversation, its composer, approvals and questions. */
import { useEffect, useRef, useState } from "./vendor-preact-hooks.js";
import { conversation, download, newId, openConversation, post, request, send, state, toast, useTopic } from "./data.js";
import { watch } from "./feed.js";
import { clock, Guard, html, Icon, revealed, State, useClock } from "./ui.js";
import { Diff, Log } from "./log.js";
import { T } from "./text.js";

const DRAFT = "hermes-draft-";

async function branch(conv, messages) {
  try {
    const made = await post(`api/sessions/${conv.id}/fork`, { messages });
    state.sessions.set(made.id, made);
    location.hash = `#/c/${made.id}`;
  } catch (error) { toast(error.message); }
}

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
    if (event.target.closest("button, input, textarea") && event.target !== event.currentTarget) return;
    const choice = { a: "once", d: "deny" }[event.key];
    if (choice && !event.ctrlKey && !event.metaKey && !sent) answer(choice);
  };
  const has = choice => asked.choices.includes(choice);
  return html`<section class="card ask" role="group" aria-label=${asked.command ? T.approve : T.approveTool(asked.tool)} tabindex="-1" onKeyDown=${onKey}>
    <header><${State} kind="warn" label=${T.waiting} /><h3>${asked.command ? T.approve : T.approveTool(asked.tool)}</h3>
      <span class="dim">${T.deniedIn(clock(asked.expires_at - Date.now() / 1000))}</span></header>
    <p class="dim">${sentence(asked.reason)} ${asked.command && !/sandbox/.test(asked.reason) ? T.sandbox(asked.sandbox) : ""}</p>
    ${asked.command ? html`<pre class="command" tabindex="0" aria-label="Command">${revealed(asked.command)}</pre>`
      : asked.diff ? html`<${Diff} lines=${asked.diff.split("\n")} />` : html`<pre class="command" tabindex="0">${revealed(asked.arguments)}</pre>`}
    ${always && html`<div class="rules"><p>${T.alwaysSaves}</p>${asked.rules.map(rule => html`<code>${rule}</code>`)}</div>`}
    ${failure && html`<p class="bad" role="alert">${failure}</p>`}
    <div class="row">
      ${has("once") && html`<button class="primary" disabled=${sent} onClick=${() => answer("once")}>${T.once}</button>`}
      ${has("session") && html`<button disabled=${sent} onClick=${() => answer("session")}>${T.session}</button>`}
      ${has("always") && (always ? html`<button disabled=${sent} onClick=${() => answer("always")}>${T.confirmAlways}</button>`
        : html`<button disabled=${sent} onClick=${() => setAlways(true)}>${T.always}</button>`)}
      <span class="space"></span><button disabled=${sent} onClick=${() => answer("deny")}>${T.deny}</button></div></section>`;
}

function Question({ conv, asked }) {
  const [text, setText] = useState("");
  const answer = value => post(`api/sessions/${conv.id}/questions/${asked.id}`, { text: value }).catch(error => toast(error.message));
  return html`<section class="card ask" role="group" aria-label=${T.question}><header><${State} kind="warn" label=${T.waiting} /><h3>${T.question}</h3></header>
    <p>${asked.text}</p><div class="row wrap">${asked.choices.map(choice => html`<button onClick=${() => answer(choice)}>${choice}</button>`)}</div>
    <form class="row" onSubmit=${event => { event.preventDefault(); if (text.trim()) answer(text); }}>
      <input aria-label=${T.answer} value=${text} onInput=${event => setText(event.target.value)} />
      <button class="primary">${T.answer}</button><button type="button" onClick=${() => answer(null)}>${T.decline}</button></form></section>`;
}

function Queued({ conv, turn }) {
  const [text, setText] = useState(null);
  const path = `api/sessions/${conv.id}/turns/${turn.id}`;
  const act = work => work.catch(error => toast(error.message));
  if (text !== null) return html`<form class="queued row" onSubmit=${event => { event.preventDefault(); act(request("PATCH", path, { content: text })); setText(null); }}>
    <input aria-label=${T.edit} value=${text} onInput=${event => setText(event.target.value)} /><button>${T.save}</button></form>`;
  return html`<div class="queued row"><span class="chip">${T.queued}</span><span class="ellipsis">${turn.text}</span><span class="space"></span>
    <button class="quiet" onClick=${() => setText(turn.text)}>${T.edit}</button>
    <button class="quiet" onClick=${() => act(request("DELETE", path))}>${T.remove}</button></div>`;
}

function useUploads() {
  const [files, setFiles] = useState([]);
  const add = async list => {
    for (const file of list) {
      try {
        const saved = await request("POST", "api/uploads", file, { raw: true,
          headers: { "X-File-Name": encodeURIComponent(file.name), "Content-Type": file.type || "application/octet-stream" } });
        setFiles(before => [...before, saved].slice(0, 10));
      } catch (error) { toast(error.message); }
    }
  };
  return { files, add, clear: () => setFiles([]), remove: id => setFiles(before => before.filter(f => f.id !== id)) };
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

function Composer({ id, conv }) {
  const key = DRAFT + (id || "new");
  const [text, setText] = useState(() => localStorage.getItem(key) || "");
  const { files, add, clear, remove } = useUploads();
  const area = useRef(null);
  const picker = useRef(null);
  const busy = Boolean(conv && conv.live.busy);
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
  const submit = async mode => {
    const content = text.trim();
    if (!content && !files.length) return;
    const item = { id: newId(), text: content, uploads: files.map(f => f.id), busy: mode };
    write("");
    clear();
    try { await send(await ensureConversation(id), item); } catch (error) { write(content); toast(error.message); }
  };
  const onKey = event => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submit("queue");
  };
  const onPaste = event => { if (event.clipboardData.files.length) { event.preventDefault(); add(event.clipboardData.files); } };
  const onDrop = event => { event.preventDefault(); add(event.dataTransfer.files); };
  const stop = () => post(`api/sessions/${id}/stop`).catch(error => toast(error.message));
  return html`<div class="composer" onDrop=${onDrop} onDragOver=${event => event.preventDefault()}>
    <textarea ref=${area} rows="1" aria-label=${T.message} placeholder=${busy ? T.placeholderBusy : T.placeholder} value=${text}
      onInput=${event => write(event.target.value)} onKeyDown=${onKey} onPaste=${onPaste}></textarea>
    ${files.length > 0 && html`<div class="row wrap">${files.map(file => html`<button class="chip" onClick=${() => remove(file.id)} title=${T.remove}>${file.name} ×</button>`)}</div>`}
    <div class="row"><input ref=${picker} type="file" multiple hidden onChange=${event => { add(event.target.files); event.target.value = ""; }} />
      <button class="quiet" aria-label=${T.attach} onClick=${() => picker.current.click()}><${Icon} name="plus" /></button>
      ${conv && state.sessions.get(conv.id) && html`<span class="chip">${state.sessions.get(conv.id).model}</span>`}<span class="space"></span>
      ${busy ? html`<button onClick=${() => submit("steer")}>${T.steer}</button><button class="danger" onClick=${stop}>${T.stop}</button>
        <button class="primary" onClick=${() => submit("queue")}>${T.queue}</button>`
        : html`<button class="primary" onClick=${() => submit("queue")}>${T.send}</button>`}</div></div>`;
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
      <button class="quiet wide" onClick=${() => download(`api/sessions/${conv.id}/export?format=markdown`).catch(e => toast(e.message))}>${T.export}</button>
      <button class="quiet" aria-label=${T.panel} aria-pressed=${panelOpen} onClick=${onPanel}><${Icon} name="panel" /></button>`}</header>`;
}

function Notes({ conv }) {
  const session = state.sessions.get(conv.id);
  const { live, ended, notice } = conv;
  const isElsewhere = session && session.state === "running" && !session.busy && !live.busy;
  const goOn = () => send(conv, { id: newId(), text: T.goOnText, uploads: [], busy: "queue" }).catch(e => toast(e.message));
  return html`${live.busy && !live.partial.text && !live.partial.tools.length && html`<p class="thinking dim"><${State} kind="running" label=${T.running} /> ${notice || "…"}</p>`}
    ${conv.unsent.map(item => html`<article class="you unsent" aria-label=${T.you}><div class="bubble">${item.text}</div><span class="dim">${item.waits ? T.unsent : T.sending}</span></article>`)}
    ${ended && ended.error && html`<p class="failure" role="alert">${ended.error}</p>`}
    ${!ended && !live.busy && session && session.state === "interrupted" && html`<p class="failure">${T.interrupted} <button onClick=${goOn}>${T.goOn}</button></p>`}
    ${isElsewhere && html`<p class="dim">${T.elsewhere}</p>`}`;
}

export function Talk({ id }) {
  useTopic(id || "app");
  const conv = id ? conversation(id) : null;
  const [panel, setPanel] = useState(() => innerWidth >= 1100);
  const [Panel, setPanelView] = useState(null);
  useEffect(() => {
    watch(id ? [id] : []);
    if (id) openConversation(id).then(() => watch([id]));
  }, [id]);
  useEffect(() => { if (panel && id && !Panel) import("./panel.js").then(module => setPanelView(() => module.Panel)); }, [panel, id]);
  if (conv && conv.error) return html`<main class="main"><${Header} conv=${null} /><p class="failure" role="alert">${conv.error.message}</p></main>`;
  return html`<main id="main" class="main talk"><div class="center"><${Header} conv=${conv} onPanel=${() => setPanel(!panel)} panelOpen=${panel} />
    ${conv ? html`<${Log} key=${id} conv=${conv} onBranch=${n => branch(conv, n)}><${Notes} conv=${conv} /><//>`
      : html`<div class="welcome"><${Icon} name="mark" /><p>${T.empty}</p></div>`}
    <div class="foot">${conv && conv.live.approvals.map(asked => html`<${Approval} key=${asked.id} conv=${conv} asked=${asked} />`)}
      ${conv && conv.live.questions.map(asked => html`<${Question} key=${asked.id} conv=${conv} asked=${asked} />`)}
      ${conv && conv.live.turns.filter(t => t.state === "queued").map(turn => html`<${Queued} key=${turn.id} conv=${conv} turn=${turn} />`)}
      <${Composer} key="composer" id=${id} conv=${conv} /></div></div>
    ${panel && Panel && conv && html`<${Guard}><${Panel} conv=${conv} onClose=${() => setPanel(false)} /><//>`}</main>`;
}

