/** The log of a conversation: messages in groups, tool calls, differences of files. */
import { useEffect, useRef, useState } from "./vendor-preact-hooks.js";
import { GROUP, changed, get, loadGroup, pageHeaders, request, toast, useTopic } from "./data.js";
import { Diff, duration, html, Icon, revealed, State } from "./ui.js";
import { Markdown } from "./markdown.js";
import { T } from "./text.js";

const GUESSED_HEIGHT = 2400;
const MOUNTED = 4;

function parseArguments(text) {
  try { const found = JSON.parse(text || "{}"); return found && typeof found === "object" ? found : {}; } catch { return {}; }
}

/** The argument that says most about a call. */
function shortArgument(args) {
  const value = args.command ?? args.path ?? args.query ?? args.url ?? Object.values(args).find(v => typeof v === "string");
  return value === undefined ? "" : revealed(String(value)).replace(/\s+/g, " ").slice(0, 200);
}

/** The lines of a change that the arguments of a call describe; null: it changes no text. */
function findChange(args) {
  if (typeof args.old_string === "string" && typeof args.new_string === "string")
    return [...args.old_string.split("\n").map(l => `-${l}`), ...args.new_string.split("\n").map(l => `+${l}`)];
  if (typeof args.patch === "string" || typeof args.diff === "string") return (args.patch || args.diff).split("\n");
  if (typeof args.content === "string" && args.path) return args.content.replace(/\n$/, "").split("\n").map(l => `+${l}`);
  return null;
}

/** How long a call took: as was told, else as the messages around it say. */
function timeCall(conv, call, result, live) {
  const told = (live && live.seconds) ?? (conv.times && conv.times[call.id]);
  return told ?? (result && call.at ? Math.max(0, result.at - call.at) : null);
}

function stateOfCall(result, live) {
  if (result) return result.error ? "failed" : "done";
  if (live && "error" in live) return live.error ? "failed" : "done";
  return live ? "running" : "done";
}

function ToolCall({ conv, call, result, live }) {
  const [whole, setWhole] = useState(null);
  const args = parseArguments(call.arguments);
  const diff = result && result.diff || conv.diffs && conv.diffs[call.id];
  const lines = diff ? diff.split("\n") : findChange(args);
  const seconds = timeCall(conv, call, result, live);
  const kind = stateOfCall(result, live);
  const added = lines ? lines.filter(l => l[0] === "+" && !l.startsWith("+++ ")).length : 0;
  const removed = lines ? lines.filter(l => l[0] === "-" && !l.startsWith("--- ")).length : 0;
  const showAll = () => request("GET", `api/sessions/${conv.id}/results/${encodeURIComponent(call.id)}`, undefined, { blob: true })
    .then(found => found.text()).then(setWhole, error => toast(error.message));
  const output = whole ?? (result ? result.text : live ? live.progress : "");
  return html`<details class="tool" data-tool=${call.name} data-state=${kind}>
    <summary><${State} kind=${kind} label=${kind} /><b>${call.name}</b><code>${shortArgument(args)}</code>
      <span class="tool-end">${lines && html`<span class="plus">+${added}</span> <span class="minus">-${removed}</span> `}
      ${seconds === null ? "" : duration(seconds)}</span></summary>
    <div class="tool-body">${lines ? html`<${Diff} lines=${lines} />` : html`<h4>${T.input}</h4><pre tabindex="0">${revealed(JSON.stringify(args, null, 2))}</pre>`}
      ${output && html`<h4>${T.output}</h4><pre tabindex="0">${revealed(output)}</pre>`}
      ${result && result.more && whole === null && html`<button class="quiet" onClick=${showAll}>${T.showMore}</button>`}</div></details>`;
}

const READING = new Set(["read_file", "search_files", "list_files", "web_search", "web_extract"]);

/** What many calls did, in a line: “Read 3 files, ran 2 commands”. */
function describeCalls(calls) {
  const counts = new Map();
  for (const call of calls) counts.set(call.name, (counts.get(call.name) || 0) + 1);
  const text = [...counts].map(([name, n]) => (T.didCalls[name] || (m => `${name} ×${m}`))(n)).join(", ");
  return text[0].toUpperCase() + text.slice(1);
}

function Tools({ conv, calls, live }) {
  const rows = calls.map(call => html`<${ToolCall} key=${call.id} conv=${conv} call=${call}
    result=${conv.results.get(call.id)} live=${live.find(t => t.id === call.id)} />`);
  const isQuiet = calls.length >= 3 && calls.every(call => READING.has(call.name) && conv.results.has(call.id) && !conv.results.get(call.id).error);
  if (!isQuiet) return html`<div class="tools">${rows}</div>`;
  const seconds = calls.reduce((sum, call) => sum + timeCall(conv, call, conv.results.get(call.id)), 0);
  return html`<details class="tools many"><summary><${State} kind="done" label="done" /><b>${describeCalls(calls)}</b>
    <code>${calls.map(call => shortArgument(parseArguments(call.arguments)).split("/").pop()).join(", ")}</code>
    <span class="tool-end">${duration(seconds)}</span></summary>${rows}</details>`;
}

function Reasoning({ text, open }) {
  return html`<details class="reasoning"><summary>${T.reasoning}${open ? "…" : ""}</summary><div class="quote">${text}</div></details>`;
}

/** A picture of a message, fetched with the page token. */
function Picture({ conv, part }) {
  const [address, setAddress] = useState(null);
  useEffect(() => {
    if (!part.href || !part.mime.startsWith("image/")) return undefined;
    let made = null;
    fetch(`api/sessions/${conv.id}/${part.href}`, { headers: pageHeaders() }).then(r => r.ok ? r.blob() : null)
      .then(blob => { if (blob) setAddress(made = URL.createObjectURL(blob)); }, () => {});
    return () => made && URL.revokeObjectURL(made);
  }, [part.href]);
  if (part.url) return html`<a href=${/^https?:/.test(part.url) ? part.url : "#"} rel="noopener noreferrer" target="_blank">${part.url.slice(0, 100)}</a>`;
  return address ? html`<img class="picture" src=${address} alt=${part.name || part.mime} />` : html`<span class="chip">${part.name || part.mime}</span>`;
}

export function Message({ conv, message, live, onBranch, onRetry }) {
  const texts = message.content.filter(p => p.type === "text").map(p => p.text).join("\n\n");
  const calls = message.content.filter(p => p.type === "tool_call" && !p.name.startsWith("_")).map(p => ({ ...p, at: message.created_at }));
  const thoughts = message.content.filter(p => p.type === "reasoning").map(p => p.text).join("\n");
  if (message.role === "tool") return null;
  if (message.role === "user") {
    if (message.kind === "summary" || message.kind === "injected")
      return html`<details class="reasoning" data-seq=${message.seq}><summary>${message.kind === "summary" ? T.summary : T.injected}</summary><div class="quote">${texts}</div></details>`;
    return html`<article class="you" aria-label=${T.you} data-seq=${message.seq}>
      ${message.content.filter(p => p.type === "media").map(part => html`<${Picture} conv=${conv} part=${part} />`)}
      <div class="bubble">${texts}</div></article>`;
  }
  return html`<article class="hermes" aria-label=${T.hermes} data-seq=${message.seq}>
    ${thoughts && html`<${Reasoning} text=${thoughts} />`}
    ${texts && html`<${Markdown} text=${texts} />`}
    ${message.content.filter(p => p.type === "media").map(part => html`<${Picture} conv=${conv} part=${part} />`)}
    ${calls.length > 0 && html`<${Tools} conv=${conv} calls=${calls} live=${live} />`}
    ${texts && !calls.length && html`<div class="actions">
      <button class="quiet" onClick=${() => navigator.clipboard && navigator.clipboard.writeText(texts)}>${T.copy}</button>
      <button class="quiet" onClick=${() => onBranch(message.seq + 1)}>${T.branch}</button>
      ${onRetry && message.seq === conv.last && !conv.live.busy && html`<button class="quiet" onClick=${onRetry}>${T.regenerate}</button>`}</div>`}</article>`;
}

/** Thirty messages by number; far from the view it is its measured height. */
function Group({ conv, number, mounted, observe, heights, onBranch, onRetry }) {
  const ref = useRef(null);
  const first = number * GROUP;
  const count = Math.min(GROUP, conv.total - first);
  const messages = [];
  for (let seq = first; seq < first + count; seq++) if (conv.messages.has(seq)) messages.push(conv.messages.get(seq));
  const complete = messages.length >= count;
  useEffect(() => observe(ref.current, number), []);
  useEffect(() => { if (mounted && !complete) loadGroup(conv, number).catch(() => {}); }, [mounted, complete]);
  if (!mounted || !messages.length)
    return html`<div ref=${ref} class="group" data-group=${number} style=${{ height: `${heights.get(number) || GUESSED_HEIGHT}px` }}></div>`;
  return html`<div ref=${ref} class="group" data-group=${number} data-whole=${complete ? "" : undefined} style=${{ height: "auto" }}>${messages.map(message =>
    html`<${Message} key=${message.seq} conv=${conv} message=${message} live=${conv.live.partial.tools} onBranch=${onBranch} onRetry=${onRetry} />`)}</div>`;
}

/** What the turn writes now and has not recorded. */
function Partial({ conv }) {
  const { text, reasoning, tools } = conv.live.partial;
  const shown = new Set();
  const last = conv.messages.get(conv.last);
  if (last) for (let seq = Math.max(0, conv.last - 40); seq <= conv.last; seq++)
    for (const part of (conv.messages.get(seq) || { content: [] }).content) if (part.type === "tool_call") shown.add(part.id);
  const loose = tools.filter(tool => !shown.has(tool.id));
  if (!text && !reasoning && !loose.length) return null;
  return html`<article class="hermes partial" aria-label=${T.hermes} data-partial>
    ${reasoning && html`<${Reasoning} text=${reasoning} open />`}
    ${text && html`<${Markdown} text=${text} open />`}
    ${loose.length > 0 && html`<${Tools} conv=${conv} calls=${loose} live=${tools} />`}</article>`;
}

/** Of the groups that are wanted those to draw now: one more with each frame, so that no task is long. */
function useGradually(wanted) {
  const shown = useRef([]);
  const [, draw] = useState(0);
  const kept = wanted.filter(number => shown.current.includes(number));
  const next = wanted.find(number => !kept.includes(number));
  shown.current = next === undefined ? kept : [...kept, next];
  const isBehind = shown.current.length < wanted.length;
  useEffect(() => {
    if (!isBehind) return undefined;
    const step = () => draw(n => n + 1);
    const frame = requestAnimationFrame(step);
    const timer = setTimeout(step, 200); // a hidden page draws no frames
    return () => { cancelAnimationFrame(frame); clearTimeout(timer); };
  });
  return new Set(shown.current);
}

function useGroups(conv, scroller) {
  const [visible, setVisible] = useState(() => new Set());
  const heights = useRef(new Map()).current;
  const observer = useRef(null);
  const ruler = useRef(null);
  const numbers = useRef(new Map());
  const makeObserver = () => new IntersectionObserver(entries => setVisible(before => {
    const next = new Set(before);
    for (const entry of entries) {
      const number = numbers.current.get(entry.target);
      if (entry.isIntersecting) next.add(number); else next.delete(number);
    }
    return next;
  }), { root: scroller.current, rootMargin: "600px 0px" });
  const makeRuler = () => new ResizeObserver(entries => {
    for (const { target, borderBoxSize } of entries)
      if ("whole" in target.dataset) heights.set(numbers.current.get(target), borderBoxSize[0].blockSize);
  });
  const observe = (element, number) => {
    observer.current = observer.current || makeObserver();
    ruler.current = ruler.current || makeRuler();
    numbers.current.set(element, number);
    observer.current.observe(element);
    ruler.current.observe(element);
    return () => { observer.current.unobserve(element); ruler.current.unobserve(element); numbers.current.delete(element); };
  };
  useEffect(() => () => { if (observer.current) { observer.current.disconnect(); ruler.current.disconnect(); } }, []);
  const last = Math.max(0, Math.ceil(conv.total / GROUP) - 1);
  const near = [...visible].sort((a, b) => b - a).slice(0, MOUNTED);
  const isNearEnd = !visible.size || near[0] >= last - 1;
  const wanted = isNearEnd && !near.includes(last) ? [last, ...near] : near;
  return { heights, observe, last, mounted: useGradually(wanted) };
}

/** @param {{conv: any, onBranch: (messages: number) => void, onRetry?: () => void, onFind?: () => void, children: any}} props */
export function Log({ conv, onBranch, onRetry, onFind, children }) {
  useTopic(conv.id);
  const scroller = useRef(null);
  const [away, setAway] = useState(false);
  const { heights, observe, last, mounted } = useGroups(conv, scroller);
  const far = useRef(new Map()).current;
  const draw = number => html`<${Group} key=${number} conv=${conv} number=${number} mounted=${mounted.has(number)}
    observe=${observe} heights=${heights} onBranch=${onBranch} onRetry=${onRetry} />`;
  const groups = [];
  if (conv.total) for (let number = 0; number <= last; number++) {
    // A node that is the same object is not looked at again, and there are hundreds of these.
    if (mounted.has(number)) far.delete(number); else if (!far.has(number)) far.set(number, draw(number));
    groups.push(far.get(number) || draw(number));
  }
  const onScroll = event => {
    const isAway = event.currentTarget.scrollTop < -400;
    if (isAway !== away) setAway(isAway);
  };
  const onKey = event => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || !onFind) return;
    event.preventDefault();
    onFind();
  };
  return html`<div class="log-frame"><div class="log" ref=${scroller} onScroll=${onScroll} onKeyDown=${onKey} tabindex="0" role="log" aria-label=${T.conversation} aria-live="off">
    <div class="column">${groups}<${Partial} conv=${conv} />${children}</div></div>
    ${away && html`<button class="latest" onClick=${() => { scroller.current.scrollTop = 0; }}><${Icon} name="down" />${T.latest}</button>`}</div>`;
}

const nextFrame = () => new Promise(resolve => requestAnimationFrame(resolve));

/** Brings a message into view and returns its element; null when it is not in this conversation. */
export async function showMessage(conv, seq) {
  const number = Math.floor(seq / GROUP);
  await loadGroup(conv, number);
  changed(conv.id);
  for (let frame = 0; frame < 300; frame++) {
    const found = document.querySelector(`[data-seq="${seq}"]`);
    if (found) {
      found.scrollIntoView({ block: "start" });
      await nextFrame(); // groups above may have been measured by now
      found.scrollIntoView({ block: "start" });
      return found;
    }
    const group = document.querySelector(`[data-group="${number}"]`);
    if (group) group.scrollIntoView();
    await nextFrame();
  }
  return null;
}

export const loadOutline = conv => get(`api/sessions/${conv.id}/outline`);
