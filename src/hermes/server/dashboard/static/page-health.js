/** The page Health: the log, by level and words. */
import { useEffect, useRef, useState } from "./vendor-preact-hooks.js";
import { get } from "./data.js";
import { html, Pending, revealed, useRequest } from "./ui.js";
import { T } from "./text.js";

function Records({ rows }) {
  const ref = useRef(null);
  useEffect(() => {
    const box = ref.current;
    const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 60;
    if (atEnd || !box.dataset.seen) box.scrollTop = box.scrollHeight;
    box.dataset.seen = "1";
  }, [rows.length]);
  return html`<div class="logs" ref=${ref} tabindex="0" role="region" aria-label=${T.logs}>${rows.length ? rows.map(row =>
    html`<div class=${row.level}>${String(row.time || "").slice(0, 19).replace("T", " ")} ${String(row.level || "").toUpperCase()} ${revealed(row.message)}</div>`) : T.noRecords}</div>`;
}

export function Page() {
  const [level, setLevel] = useState("warning");
  const [words, setWords] = useState("");
  const found = useRequest(() => get(`api/logs?level=${level}&q=${encodeURIComponent(words)}`), [level, words]);
  useEffect(() => {
    const timer = setInterval(found.again, 2000);
    return () => clearInterval(timer);
  }, []);
  return html`<section class="card"><h2>${T.logs}</h2><div class="row wrap"><label>${T.level} <select value=${level} onChange=${event => setLevel(event.target.value)}>${T.levels.map(name => html`<option value=${name}>${name}</option>`)}</select></label>
    <input type="search" aria-label=${T.filter} placeholder=${T.filter} value=${words} onInput=${event => setWords(event.target.value)} /></div>
    <${Pending} of=${found}>${found.data && html`<${Records} rows=${found.data.data} />`}<//></section>`;
}
