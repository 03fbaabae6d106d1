/** Small parts that pages share: the template function, icons, times, dialogs, failures, differences of files. */
import { h, Component } from "./vendor-preact.js";
import { useEffect, useRef, useState } from "./vendor-preact-hooks.js";
import htm from "./vendor-htm.js";
import { T } from "./text.js";

export const html = htm.bind(h);

const PATHS = {
  talk: "M4 5h16v11H9l-5 4z",
  now: "M3 12h4l3-7 4 14 3-7h4",
  usage: "M5 20V10M12 20V4M19 20v-7",
  schedule: "M12 3a9 9 0 1 0 .1 0M12 7v5l3 2",
  knowledge: "M5 4h12a2 2 0 0 1 2 2v14H7a2 2 0 0 1-2-2zM5 18a2 2 0 0 1 2-2h12",
  connections: "M9 3v5M15 3v5M7 8h10v3a5 5 0 0 1-10 0zM12 16v5",
  settings: "M12 8.5a3.5 3.5 0 1 0 .1 0M12 2v3M12 19v3M2 12h3M19 12h3M5 5l2 2M17 17l2 2M19 5l-2 2M7 17l-2 2",
  health: "M12 20S4 15 4 9a4 4 0 0 1 8-1 4 4 0 0 1 8 1c0 6-8 11-8 11z",
  mark: "M12 3v18M5 5c0 5 3 7 7 7s7-2 7-7M3 9c2 4 5 6 9 6s7-2 9-6",
  menu: "M4 7h16M4 12h16M4 17h16",
  plus: "M12 5v14M5 12h14",
  down: "M12 5v14M6 13l6 6 6-6",
  panel: "M4 5h16v14H4zM15 5v14",
};

/** @param {{name: string}} props */
export function Icon({ name }) {
  return html`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true"><path d=${PATHS[name]} /></svg>`;
}

/** A point or a ring that says in which state something is; never by colour alone. */
export function State({ kind, label }) {
  return html`<span class=${`state ${kind}`} role="img" aria-label=${label || kind} title=${label || kind}></span>`;
}

/** @param {number} seconds since 1970 */
export function timeAgo(seconds) {
  const past = Date.now() / 1000 - seconds;
  if (past < 60) return T.now;
  if (past < 3600) return T.minutes(Math.floor(past / 60));
  if (past < 86400) return T.hours(Math.floor(past / 3600));
  const date = new Date(seconds * 1000);
  if (past < 6 * 86400) return date.toLocaleDateString("en-GB", { weekday: "short" });
  return date.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
}

/** A time with its zone, as it is on the clock of that zone. */
export function timeOf(iso) {
  const day = new Date(`${iso.slice(0, 10)}T00:00:00Z`).toLocaleDateString("en-GB", { timeZone: "UTC", weekday: "short", day: "numeric", month: "short" });
  return html`<time class="nowrap" datetime=${iso} title=${iso}>${day} ${iso.slice(11, 16)}</time>`;
}

export function clock(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}

export function duration(seconds) {
  return seconds < 60 ? `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s` : clock(seconds);
}

export function money(dollars) {
  if (dollars === null || dollars === undefined) return "–";
  return `$${dollars >= 1 || dollars === 0 ? dollars.toFixed(2) : dollars.toFixed(3)}`;
}

export function count(number) {
  if (number >= 1e6) return `${(number / 1e6).toFixed(1)} M`;
  return Number(number || 0).toLocaleString("en-US");
}

/** Re-renders every `milliseconds` while mounted. */
export function useClock(milliseconds) {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick(n => n + 1), milliseconds);
    return () => clearInterval(timer);
  }, [milliseconds]);
}

/** What a request returned: data, a failure, or nothing yet; `again` repeats it. */
export function useRequest(load, keys) {
  const [found, setFound] = useState({});
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    let current = true;
    load().then(data => current && setFound({ data }),
      error => current && setFound(before => ({ data: before.data, error })));
    return () => { current = false; };
  }, [...keys, turn]);
  return { ...found, again: () => setTurn(n => n + 1) };
}

/** Shows a failure with what to do, or that something is loading. */
export function Pending({ of, children }) {
  if (of.error) return html`<div class="failure" role="alert"><p>${of.error.message || T.failed}</p>
    <button onClick=${of.again}>${T.retry}</button></div>${of.data && children}`;
  if (!of.data) return html`<div class="skeleton" aria-label=${T.loading}><i></i><i></i><i></i></div>`;
  return children;
}

/** Shows the error of a part that crashed, and leaves the rest alone. */
export class Guard extends Component {
  constructor() {
    super();
    this.state = { error: null };
  }
  static getDerivedStateFromError(error) {
    return { error };
  }
  componentDidCatch(error) {
    console.error(error);
  }
  render() {
    if (!this.state.error) return this.props.children;
    return html`<div class="failure" role="alert"><p>${T.crashed} ${String(this.state.error.message || this.state.error)}</p>
      <button onClick=${() => location.reload()}>${T.reload}</button></div>`;
  }
}

/** A dialog that returns the focus when it closes. */
export function Dialog({ title, onClose, children, kind = "" }) {
  const ref = useRef(null);
  useEffect(() => {
    const before = document.activeElement;
    const dialog = ref.current;
    dialog.showModal();
    return () => { dialog.close(); before && before.focus && before.focus(); };
  }, []);
  return html`<dialog ref=${ref} class=${kind} aria-label=${title} onCancel=${event => { event.preventDefault(); onClose(); }}
    onClick=${event => event.target === ref.current && onClose()}>
    <div class="dialog"><h2>${title}</h2>${children}</div></dialog>`;
}

/** A few choices side by side, one of them pressed. */
export function Segments({ label, options, value, onChange }) {
  return html`<div class="segments" role="group" aria-label=${label}>${Object.entries(options).map(([key, text]) =>
    html`<button type="button" aria-pressed=${String(value) === key} onClick=${() => onChange(key)}>${text}</button>`)}</div>`;
}

/** A button that opens a list of actions; Escape, a choice and a click elsewhere close it. */
export function Menu({ label, name, kind = "quiet", children }) {
  const [open, setOpen] = useState(false);
  const ref = useRef(null);
  useEffect(() => {
    if (!open) return undefined;
    const close = event => { if (!ref.current.contains(event.target)) setOpen(false); };
    addEventListener("pointerdown", close, true);
    return () => removeEventListener("pointerdown", close, true);
  }, [open]);
  const onKey = event => {
    if (event.key !== "Escape" || !open) return;
    event.stopPropagation();
    setOpen(false);
    ref.current.firstElementChild.focus();
  };
  return html`<div class="menu-frame" ref=${ref} onKeyDown=${onKey}><button class=${kind} aria-label=${name} aria-expanded=${open} onClick=${() => setOpen(!open)}>${label}</button>
    ${open && html`<div class="menu" onClick=${event => event.target.closest("button") && setOpen(false)}>${children}</div>`}</div>`;
}

/** Text with control characters made visible. */
export function revealed(text) {
  return String(text).replace(/[\0-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180b-\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e0fff}]/gu,
    c => `\\u${c.codePointAt(0).toString(16).padStart(4, "0")}`);
}

/** Exactly what would be run. Where it is too long to be seen at once, its end is shown as well: nothing hides there. */
export function Command({ text }) {
  const box = useRef(null);
  const [isLong, setLong] = useState(false);
  useEffect(() => { setLong(box.current.scrollHeight > box.current.clientHeight + 1); }, [text]);
  return html`<pre class="command" ref=${box} tabindex="0" aria-label=${T.command}>${revealed(text)}</pre>
    ${isLong && html`<p class="dim">${T.endsWith}</p><pre class="command end" tabindex="0" aria-label=${T.endsWith}>${revealed(text.slice(-2000))}</pre>`}`;
}

export function announce(text) {
  const region = document.getElementById("announcements");
  if (region) region.textContent = text;
}

/** The lines of a unified difference with their numbers before and after; no hunk: no numbers. */
function numberLines(lines) {
  let before = 0;
  let after = 0;
  return lines.map(line => {
    const hunk = /^@@ -(\d+)(?:,\d+)? \+(\d+)/.exec(line);
    if (hunk) { [before, after] = [Number(hunk[1]), Number(hunk[2])]; return { line, kind: "hunk" }; }
    if (/^(\+\+\+|---) /.test(line) && !before && !after) return { line, kind: "file" };
    const numbered = before || after;
    if (line.startsWith("+")) return { line, kind: "add", after: numbered ? after++ : "" };
    if (line.startsWith("-")) return { line, kind: "del", before: numbered ? before++ : "" };
    return { line, kind: "", before: numbered ? before++ : "", after: numbered ? after++ : "" };
  });
}

export function Diff({ lines, label = T.changesOf }) {
  const rows = numberLines(lines.slice(0, 2000));
  const numbered = rows.some(row => row.kind === "hunk");
  return html`<div class=${`diff ${numbered ? "numbered" : ""}`} tabindex="0" role="region" aria-label=${label}>${rows.map(row =>
    html`<div class=${row.kind}>${numbered && html`<i>${row.before}</i><i>${row.after}</i>`}<span>${revealed(row.line) || " "}</span></div>`)}
    ${lines.length > 2000 && html`<div class="hunk">${T.moreLines(lines.length - 2000)}</div>`}</div>`;
}
