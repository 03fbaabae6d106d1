/** The page Health: the doctor with its repairs, and the log as it is written. */
import { useEffect, useRef, useState } from "./vendor-preact-hooks.js";
import { get, logReaders, post, toast, useNews } from "./data.js";
import { followLog } from "./feed.js";
import { html, Pending, revealed, State, useRequest } from "./ui.js";
import { T } from "./text.js";

const MOST = 500;
const KINDS = { ok: "done", note: "warn", failed: "failed" };

function CheckRow({ check, again }) {
  const fix = () => post(`api/doctor/${encodeURIComponent(check.name)}/fix`).then(found => { toast(found.lines.join(" ")); again(); }, error => toast(error.message));
  return html`<li class="check"><${State} kind=${KINDS[check.state]} label=${T.checkStates[check.state]} /><b>${check.name}</b><div><p>${revealed(check.text)}</p>
    ${check.details.length > 0 && html`<details><summary>${T.details}</summary>${check.details.map(text => html`<p class="dim">${revealed(text)}</p>`)}</details>`}</div>
    ${check.fixable && html`<button onClick=${fix}>${T.fix}</button>`}</li>`;
}

/** What is wrong comes first. */
const RANK = { failed: 0, note: 1, ok: 2 };

function Doctor() {
  const [online, setOnline] = useState(false);
  const found = useRequest(() => post("api/doctor", { online }), [online]);
  const rows = found.data ? [...found.data.data].sort((a, b) => RANK[a.state] - RANK[b.state]) : [];
  const failed = rows.filter(row => row.state === "failed").length;
  return html`<section class="card" aria-label=${T.doctor}><div class="row wrap"><h2>${T.doctor}</h2>${found.data && html`<span class="dim" role="status">${failed ? T.failedChecks(failed) : T.allWell}</span>`}<span class="space"></span>
      <button onClick=${() => setOnline(true)} disabled=${online}>${T.testKey}</button><button onClick=${found.again}>${T.checkAgain}</button></div>
    <${Pending} of=${found}>${found.data && html`<ul class="list">${rows.map((check, n) => html`<${CheckRow} key=${`${check.name} ${n}`} check=${check} again=${found.again} />`)}</ul>`}<//></section>`;
}

function Records({ rows }) {
  const ref = useRef(null);
  const [held, setHeld] = useState(false);
  const last = rows.length ? `${rows[rows.length - 1].time} ${rows.length}` : "";
  useEffect(() => { const box = ref.current; if (!held) box.scrollTop = box.scrollHeight; }, [last, held]);
  const onScroll = event => {
    const box = event.currentTarget;
    setHeld(box.scrollHeight - box.scrollTop - box.clientHeight > 40);
  };
  return html`<div class="logs" ref=${ref} onScroll=${onScroll} tabindex="0" role="region" aria-label=${T.logs}>${rows.length ? rows.map((row, n) =>
    html`<div key=${n} class=${row.level}>${String(row.time || "").slice(0, 19).replace("T", " ")} ${String(row.level || "").toUpperCase()} ${revealed(row.message)}</div>`) : T.noRecords}</div>
    <p class="dim small" role="status">${held ? html`${T.logHeld} <button class="quiet" onClick=${() => setHeld(false)}>${T.latest}</button>` : T.logFollows}</p>`;
}

const nameRecord = record => `${record.time} ${record.message}`;

/** The loaded records and those that came since, each once. */
function joinRecords(loaded, live) {
  const known = new Set(loaded.map(nameRecord));
  return [...loaded, ...live.filter(record => !known.has(nameRecord(record)))].slice(-MOST);
}

/** What is logged while the page is open. */
function useRecords(level, words) {
  const [rows, setRows] = useState([]);
  useEffect(() => { followLog(level); return () => followLog(""); }, [level]);
  useEffect(() => {
    setRows([]);
    const fits = record => T.levels.indexOf(record.level) >= T.levels.indexOf(level) || !T.levels.includes(record.level);
    const take = record => { if (fits(record) && String(record.message).toLowerCase().includes(words.toLowerCase())) setRows(before => [...before, record].slice(-MOST)); };
    logReaders.add(take);
    return () => logReaders.delete(take);
  }, [level, words]);
  return rows;
}

function Log() {
  const [level, setLevel] = useState("info");
  const [words, setWords] = useState("");
  const found = useRequest(() => get(`api/logs?level=${level}&q=${encodeURIComponent(words)}`), [level, words]);
  useNews("hello", found.again); // what was written while nobody listened
  const live = useRecords(level, words);
  return html`<section class="card" aria-label=${T.logs}><h2>${T.logs}</h2><div class="row wrap"><label>${T.level} <select value=${level} onChange=${event => setLevel(event.target.value)}>${T.levels.map(name => html`<option value=${name}>${name}</option>`)}</select></label>
    <input type="search" aria-label=${T.filter} placeholder=${T.filter} value=${words} onInput=${event => setWords(event.target.value)} /></div>
    <${Pending} of=${found}>${found.data && html`<${Records} rows=${joinRecords(found.data.data, live)} />`}<//></section>`;
}

export function Page() {
  return html`<${Doctor} /><${Log} />`;
}
