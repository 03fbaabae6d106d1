/** Parts of the page Settings that are no keys of config.yaml: models, keys, rules, browsers, versions. */
import { useEffect, useRef, useState } from "./vendor-preact-hooks.js";
import { get, post, request, toast } from "./data.js";
import { count, duration, html, money, Pending, revealed, State, timeAgo, useRequest } from "./ui.js";
import { T } from "./text.js";

const fail = error => toast(error.message);

/** Runs a test and keeps what it said. */
function useTrial(path) {
  const [trial, setTrial] = useState(null);
  const run = () => { setTrial({ runs: true }); post(path).then(setTrial, error => setTrial({ works: false, error: { message: error.message } })); };
  return [trial, run];
}

function Trial({ trial }) {
  if (!trial) return null;
  if (trial.runs) return html`<p role="status"><${State} kind="running" label=${T.running} /> ${T.testing}</p>`;
  const failure = trial.error && (trial.error.message || trial.error);
  return html`<p role="status" class=${failure ? "bad" : ""}><${State} kind=${failure ? "failed" : "done"} label=${failure ? T.columns.failed : T.works} />
    ${" "}${failure || `${T.works}${trial.seconds ? `, ${duration(trial.seconds)}` : ""}${trial.cost_usd ? `, ${money(trial.cost_usd)}` : ""}`}</p>`;
}

/** The downloads of models by name, asked for again while one runs. */
function useDownloads(onDone) {
  const found = useRequest(() => get("api/models/pull"), []);
  const rows = found.data ? found.data.data : [];
  const running = rows.some(row => row.state === "running");
  const wasRunning = useRef(false);
  useEffect(() => {
    if (!running) { if (wasRunning.current) onDone(); wasRunning.current = false; return undefined; }
    wasRunning.current = true;
    const timer = setInterval(found.again, 1000);
    return () => clearInterval(timer);
  }, [running]);
  return { again: found.again, rows: new Map(rows.map(row => [row.name, row])) };
}

const megabytes = bytes => T.megabytes(Math.round(bytes / 1e6));

function LocalModel({ row, download, pull }) {
  const { name } = row;
  if (download && download.state === "running") return html`<li><div class="row"><span class="ellipsis" title=${row.title}>${name}</span><span class="space"></span><span class="dim nowrap">${megabytes(download.done)} ${T.of} ${megabytes(download.total)}</span></div>
    <progress class="bar" max=${download.total} value=${download.done} aria-label=${`${T.downloading}: ${name}`}></progress>${download.note && html`<p class="dim">${download.note}</p>`}</li>`;
  return html`<li><div class="row"><span class="ellipsis" title=${row.title}>${name}</span><span class="space"></span><span class="dim nowrap">${row.downloaded ? T.downloaded : megabytes(row.bytes)}</span>
    ${!row.downloaded && html`<button class="quiet" aria-label=${`${T.download}: ${name}`} onClick=${() => pull(row.name)}>${T.download}</button>`}</div>
    ${download && download.error && html`<p class="bad" role="alert">${download.error}</p>`}</li>`;
}

function Embedded({ rows, again }) {
  const downloads = useDownloads(again);
  if (!rows || !rows.length) return null;
  const pull = name => post("api/models/pull", { name }).then(downloads.again, fail);
  return html`<div class="field"><div><h3>${T.localModels}</h3><p>${T.localHelp}</p></div><ul>${rows.map(row =>
    html`<${LocalModel} key=${row.name} row=${row} download=${downloads.rows.get(row.name)} pull=${pull} />`)}</ul></div>`;
}

function Chooser({ rows, again }) {
  const choose = event => {
    event.preventDefault();
    post("api/models/set", { model: event.target.elements.model.value.trim() }).then(done => { toast(done.lines.join(" ")); again(); }, fail);
  };
  return html`<div class="field"><div><h3>${T.chooseModel}</h3><p>${T.chooseHelp}</p></div><form class="row" onSubmit=${choose}><input name="model" list="model-names" aria-label=${T.chooseModel} placeholder="provider:model" required />
    <datalist id="model-names">${rows.map(row => html`<option value=${row.model}>${row.about}</option>`)}</datalist><button>${T.set}</button></form></div>`;
}

/** The model that answers now, what it can do, a test of it, and the choice of another. */
export function Models() {
  const found = useRequest(() => get("api/models"), []);
  const [trial, run] = useTrial("api/models/test");
  const model = found.data && found.data.current;
  const can = model ? ["tools", "images", "reasoning"].filter(name => model[name]) : [];
  return html`<${Pending} of=${found}>${model && html`<div class="field"><div><h3>${T.model}</h3>
      ${model.error ? html`<p class="bad">${model.error}</p>` : html`<p>${model.model} (${model.provider})${model.base_url ? `, ${model.base_url}` : ""}</p>
        <p>${model.context_length ? T.contextOf(count(model.context_length)) : ""}${can.length ? `, ${can.join(", ")}` : ""}${model.prices && model.prices.input !== null ? `, ${T.prices(model.prices.input, model.prices.output)}` : ""}</p>`}
      ${model.note && html`<p>${model.note}</p>`}
      ${model.fallbacks.map(row => html`<p>${T.fallback}: ${row.entry}${row.usable ? "" : ` (${T.notUsable})`}</p>`)}
      ${Object.entries(model.auxiliary).map(([job, name]) => html`<p>${job}: ${name}</p>`)}</div>
    <div><button onClick=${run} disabled=${trial && trial.runs}>${T.test}</button><${Trial} trial=${trial} /></div></div>
    <${Chooser} rows=${found.data.data} again=${found.again} /><${Embedded} rows=${found.data.embedded} again=${found.again} />`}<//>`;
}

function Key({ row, again }) {
  const [trial, run] = useTrial(`api/keys/${row.name}/test`);
  const store = value => request(value ? "PUT" : "DELETE", `api/keys/${row.name}`, value ? { value } : undefined).then(again, fail);
  const submit = event => {
    event.preventDefault();
    const input = event.target.elements.value;
    const { value } = input;
    input.value = "";
    if (value) store(value);
  };
  return html`<div class="field"><div><h3>${row.name}</h3><p>${row.set ? T.keySet(row.from) : T.keyUnset}${row.used_at ? `, ${T.usedAt(timeAgo(row.used_at))}` : ""}${row.failed ? html`, <span class="bad">${row.failed === true ? T.keyFailed : row.failed}</span>` : ""}</p><${Trial} trial=${trial} /></div>
    <form class="row wrap" onSubmit=${submit}><input name="value" type="password" autocomplete="off" aria-label=${`${T.newValue}: ${row.name}`} placeholder=${T.newValue} /><button>${T.set}</button>
    ${row.set && html`<button type="button" class="quiet" onClick=${run}>${T.test}</button>`}
    ${row.from === ".env" && html`<button type="button" class="quiet" onClick=${() => store("")}>${T.remove}</button>`}</form></div>`;
}

/** Keys: they can be set, tested and removed, never read. */
export function Keys() {
  const found = useRequest(() => get("api/keys"), []);
  return html`<h3>${T.keys}</h3><p class="dim">${T.keysHelp}</p><${Pending} of=${found}>${found.data && found.data.data.map(row => html`<${Key} key=${row.name} row=${row} again=${found.again} />`)}<//>`;
}

function TryCommand() {
  const [answer, setAnswer] = useState(null);
  const submit = event => { event.preventDefault(); post("api/approvals/check", { command: event.target.elements.command.value }).then(setAnswer, fail); };
  return html`<div class="field"><div><h3>${T.tryCommand}</h3><p>${T.tryHelp}</p></div><form onSubmit=${submit}><div class="row"><input name="command" class="mono" aria-label=${T.tryCommand} required /><button>${T.try}</button></div>
    ${answer && html`<p role="status" class=${answer.decision}><b>${T.decisions[answer.decision] || answer.decision}</b>${answer.reasons.length ? `: ${answer.reasons.join("; ")}` : ""}</p>`}</form></div>`;
}

const describeRule = row => [].concat(row.rule.prefix).map(word => Array.isArray(word) ? word.join("|") : word).join(" ");

/** The rules about commands: those of the file, a new one, and what they say about a command. */
export function Rules() {
  const found = useRequest(() => get("api/approvals/rules"), []);
  const add = event => {
    event.preventDefault();
    const { decision, prefix } = event.target.elements;
    post("api/approvals/rules", { decision: decision.value, prefix: prefix.value.trim() }).then(() => { prefix.value = ""; found.again(); }, fail);
  };
  const remove = id => request("DELETE", `api/approvals/rules?id=${encodeURIComponent(id)}`).then(found.again, fail);
  return html`<${TryCommand} /><div class="field"><div><h3>${T.rules}</h3><p>${T.rulesHelp}</p></div><div>
    <${Pending} of=${found}>${found.data && html`<ul class="rules-list">${found.data.data.map(rule => html`<li key=${rule.id} class="row"><span class="chip">${T.decisions[rule.rule.decision] || rule.rule.decision}</span><code class="ellipsis" title=${rule.text}>${revealed(describeRule(rule))}</code><span class="space"></span>
      <button class="quiet" aria-label=${`${T.remove}: ${describeRule(rule)}`} onClick=${() => remove(rule.id)}>${T.remove}</button></li>`)}</ul>
      ${!found.data.data.length && html`<p>${T.noRules}</p>`}`}<//>
    <form class="row wrap" onSubmit=${add}><select name="decision" aria-label=${T.decision}>${Object.entries(T.ruleVerbs).map(([key, text]) => html`<option value=${key}>${text}</option>`)}</select>
      <input name="prefix" class="mono" aria-label=${T.ruleBegins} placeholder=${T.ruleBegins} required /><button>${T.add}</button></form></div></div>`;
}

const BROWSERS = [["Edg/", "Edge"], ["OPR/", "Opera"], ["Firefox/", "Firefox"], ["Chrome/", "Chrome"], ["Safari/", "Safari"]];
const SYSTEMS = [["Android", "Android"], ["iPhone", "iPhone"], ["iPad", "iPad"], ["Windows", "Windows"], ["Mac OS X", "macOS"], ["CrOS", "ChromeOS"], ["Linux", "Linux"]];

/** What people call a browser, told by what it says of itself. */
function nameBrowser(agent) {
  const find = names => (names.find(([mark]) => agent.includes(mark)) || [])[1];
  const browser = find(BROWSERS);
  const system = find(SYSTEMS);
  return browser && system ? T.browserOn(browser, system) : agent.slice(0, 80) || "–";
}

export function Browsers() {
  const found = useRequest(() => get("api/web/browsers"), []);
  const end = id => request("DELETE", `api/web/browsers${id ? `?id=${id}` : ""}`).then(found.again, fail);
  return html`<${Pending} of=${found}>${found.data && found.data.data.map(row => html`<div class="field"><div><h3 title=${row.browser}>${nameBrowser(row.browser)}</h3><p>${row.address}, ${timeAgo(row.used_at)}${row.current ? `, ${T.thisBrowser}` : ""}</p></div>
    <div><button onClick=${() => end(row.id)}>${T.signOut}</button></div></div>`)}<div><button class="danger" onClick=${() => end("")}>${T.signOutAll}</button></div><//>`;
}

export function Versions({ onDone }) {
  const found = useRequest(() => get("api/config/versions"), []);
  const restore = version => post("api/config/restore", { version }).then(() => { toast(T.saved); found.again(); onDone(); }, fail);
  return html`<${Pending} of=${found}>${found.data && (found.data.data.length ? found.data.data.map(row => html`<details key=${row.version} class="version"><summary>${new Date(row.saved_at * 1000).toLocaleString("en-GB")}</summary>
    <pre tabindex="0" role="region" aria-label=${T.file}>${row.text}</pre><button onClick=${() => restore(row.version)}>${T.restore}</button></details>`) : html`<p class="dim">${T.noChange}</p>`)}<//>`;
}
