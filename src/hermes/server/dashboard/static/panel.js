/** The right panel of a conversation: plan, trace of a turn, cost, context, changed files, checkpoints, outline. */
import { useEffect, useMemo, useRef, useState } from "./vendor-preact-hooks.js";
import { download, get, may, post, state, toast, useTopic } from "./data.js";
import { count, Dialog, Diff, duration, html, money, State, timeAgo, useRequest } from "./ui.js";
import { loadOutline, showMessage } from "./log.js";
import { T } from "./text.js";

const PAUSE = 3000;

/** Another value when the panel has something new to load: a turn has ended, or its tools have done something. */
function useNewest(conv) {
  const settled = useRef("");
  const { busy } = conv.live;
  if (!busy) settled.current = `${conv.total} ${Math.max(1, conv.settled)}`; // the first time it only connects
  const [done, setDone] = useState(conv.results.size);
  useEffect(() => {
    if (!busy) return undefined;
    const timer = setInterval(() => setDone(conv.results.size), PAUSE);
    return () => clearInterval(timer);
  }, [conv, busy]);
  return `${settled.current} ${done}`;
}

function Bar({ share, label }) {
  return html`<progress class="bar" max="100" value=${Math.min(100, Math.round(share * 100))} aria-label=${label}></progress>`;
}

/** Neighbouring calls of one tool as one row. */
function mergeSpans(spans) {
  const rows = [];
  for (const span of spans) {
    const last = rows[rows.length - 1];
    if (last && span.kind === "tool" && last.kind === "tool" && last.name === span.name) {
      last.number += 1;
      last.error = last.error || span.error;
      last.seconds = Math.max(last.start + last.seconds, span.start + span.seconds) - last.start;
    } else rows.push({ ...span, number: 1 });
  }
  return rows;
}

function Span({ row, whole }) {
  const name = row.kind === "model" ? T.modelCall : row.name;
  const share = value => `${Math.max(0, Math.min(100, 100 * value / whole))}%`;
  const title = [row.name, row.input ? T.spanTokens(count(row.input), count(row.cached || 0), count(row.output || 0)) : "", row.cost_usd ? money(row.cost_usd) : "", row.error ? T.columns.failed : ""].filter(Boolean).join(", ");
  return html`<li class="span" title=${title}><span class=${`ellipsis ${row.error ? "bad" : ""}`}>${name}${row.number > 1 ? ` ×${row.number}` : ""}</span>
    <svg aria-hidden="true" class="track"><rect class=${row.kind === "model" ? "c0" : "c1"} x=${share(row.start)} width=${share(row.seconds)} height="100%" rx="2" /></svg>
    <span class="dim">${duration(row.seconds)}</span></li>`;
}

function Trace({ conv, newest }) {
  const found = useRequest(() => get(`api/sessions/${conv.id}/trace`), [conv.id, newest]);
  const [chosen, setChosen] = useState(-1);
  const turns = found.data ? found.data.turns : [];
  const turn = turns[chosen >= 0 ? chosen : turns.length - 1];
  if (!turn || !turn.spans.length) return null;
  const first = Math.min(...turn.spans.map(span => span.start));
  const rows = mergeSpans(turn.spans.map(span => ({ ...span, start: span.start - first })));
  const whole = Math.max(0.001, ...rows.map(row => row.start + row.seconds));
  const last = turns.length - 1;
  const at = chosen >= 0 ? chosen : last;
  return html`<section><h2>${at === last ? T.thisTurn : T.turnOf(at + 1, turns.length)}</h2><ul class="spans">${rows.map((row, n) => html`<${Span} key=${n} row=${row} whole=${whole} />`)}</ul>
    <div class="fact dim"><span>${duration(turn.seconds || whole)}</span><span>${money(turn.cost_usd)}</span></div>
    ${turns.length > 1 && html`<div class="row"><button class="quiet" disabled=${at === 0} onClick=${() => setChosen(at - 1)}>${T.turnBefore}</button><button class="quiet" disabled=${at === last} onClick=${() => setChosen(at + 1 === last ? -1 : at + 1)}>${T.turnAfter}</button></div>`}</section>`;
}

/** The part of a difference that is about one file; the server lists the files in its order. */
const cutDiff = (diff, number) => diff.split(/^(?=diff --git )/m).filter(part => part.startsWith("diff --git "))[number] || "";

function Changes({ conv, newest }) {
  const found = useRequest(() => get(`api/sessions/${conv.id}/changes`), [conv.id, newest]);
  const [shown, setShown] = useState(null);
  const files = found.data ? found.data.files : [];
  if (!files.length) return null;
  const save = path => download(`api/sessions/${conv.id}/file?path=${encodeURIComponent(path)}`).catch(error => toast(error.message));
  return html`<section><h2>${T.changedFiles}</h2><ul>${files.map((file, n) => html`<li key=${file.path} class="fact"><button class="quiet ellipsis" onClick=${() => setShown({ ...file, diff: cutDiff(found.data.diff, n) })}>${file.path}</button>
      <span><span class="plus">+${file.added}</span> <span class="minus">-${file.removed}</span></span></li>`)}</ul>
    ${shown && html`<${Dialog} title=${shown.path} onClose=${() => setShown(null)}><${Diff} lines=${shown.diff.trimEnd().split("\n")} label=${shown.path} />
      <div class="row">${shown.state !== "removed" && html`<button onClick=${() => save(shown.path)}>${T.download}</button>`}<span class="space"></span><button onClick=${() => setShown(null)}>${T.close}</button></div><//>`}</section>`;
}

function Checkpoints({ conv }) {
  const [open, setOpen] = useState(false);
  const [list, setList] = useState(null);
  useEffect(() => { if (open) get(`api/sessions/${conv.id}/checkpoints`).then(found => setList(found.data), error => { setOpen(false); toast(error.message); }); }, [open]);
  const restore = row => post(`api/sessions/${conv.id}/checkpoints/${encodeURIComponent(row.id)}/restore`).then(() => { setOpen(false); toast(T.restored); }, error => { setOpen(false); toast(error.message); });
  return html`<button onClick=${() => setOpen(true)}>${T.restoreCheckpoint}</button>
    ${open && list && html`<${Dialog} title=${T.restoreCheckpoint} onClose=${() => setOpen(false)}><p class="dim">${T.checkpointHelp}</p>
      ${list.length ? html`<ul class="list">${list.map(row => html`<li key=${row.id} class="row"><span>${timeAgo(row.created)}</span><span class="dim ellipsis">${row.label}, ${T.files(row.files)}</span><span class="space"></span><button onClick=${() => restore(row)}>${T.restore}</button></li>`)}</ul>` : html`<p>${T.noCheckpoints}</p>`}
      <div class="row"><span class="space"></span><button onClick=${() => setOpen(false)}>${T.close}</button></div><//>`}`;
}

function Plan({ todo }) {
  if (!todo || !todo.length) return null;
  return html`<section><h2>${T.plan}</h2><ul class="plan">${todo.map(item => html`<li class=${item.status || "pending"}>
    <${State} kind=${{ completed: "done", in_progress: "running" }[item.status] || "idle"} label=${item.status || "pending"} /> ${item.content}</li>`)}</ul></section>`;
}

function Cost({ usage, session }) {
  return html`<section><h2>${T.cost}</h2><div class="fact"><span>${T.conversation}</span><span>${money(session ? session.cost_usd : null)}</span></div>
    ${usage && usage.input > 0 && html`<div class="fact"><span>${T.lastCall}</span><span>${money(usage.cost_usd)}</span></div>
      <div class="fact"><span>${T.context}</span><span>${count(usage.input)}${usage.context_length ? ` ${T.of} ${count(usage.context_length)}` : ""}</span></div>
      ${usage.context_length && html`<${Bar} share=${usage.input / usage.context_length} label=${T.context} />`}
      <div class="fact dim"><span>${T.fromCache}</span><span>${Math.round(100 * (usage.cached || 0) / usage.input)} %</span></div>`}</section>`;
}

const SHOWN = 100;

/** What the user wrote, the latest rows of it; a long conversation has thousands. */
function Outline({ conv, rows }) {
  const [number, setNumber] = useState(SHOWN);
  return useMemo(() => html`<section><h2>${T.outline}</h2>${rows.length > number && html`<button class="quiet" onClick=${() => setNumber(number + SHOWN)}>${T.showEarlier}</button>`}
    <ul class="outline">${rows.slice(-number).map(row => html`<li key=${row.seq}><button class="quiet ellipsis" onClick=${() => showMessage(conv, row.seq)}>${row.text || "…"}</button></li>`)}</ul></section>`, [conv, rows, number]);
}

export function Panel({ conv, onClose }) {
  useTopic(conv.id);
  const newest = useNewest(conv);
  const outline = useRequest(() => loadOutline(conv), [conv.id, newest]);
  return html`<aside class="panel" aria-label=${T.panel}>
    <button class="quiet panel-close" onClick=${onClose}>${T.close}</button>
    <${Plan} todo=${conv.live.todo} /><${Trace} conv=${conv} newest=${newest} /><${Cost} usage=${conv.live.usage} session=${state.sessions.get(conv.id)} />
    <${Changes} conv=${conv} newest=${newest} />${may("admin") && html`<section><${Checkpoints} conv=${conv} /></section>`}
    ${outline.data && outline.data.data.length > 1 && html`<${Outline} conv=${conv} rows=${outline.data.data} />`}</aside>`;
}
