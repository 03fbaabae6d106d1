/** The page Settings: a form by category, keys, rules, browsers, versions, the file. */
import { useState } from "./vendor-preact-hooks.js";
import { get, post, request, toast } from "./data.js";
import { Dialog, html, Pending, timeAgo, useRequest } from "./ui.js";
import { Diff } from "./log.js";
import { T } from "./text.js";

const EXTRA = { keys: T.keys, browsers: T.browsers, versions: T.versions, file: T.file };

function Control({ field, value, onChange }) {
  const name = { "aria-label": field.key };
  if (field.kind === "bool") return html`<input type="checkbox" ...${name} checked=${value} onChange=${event => onChange(event.target.checked)} />`;
  if (field.kind === "choice") return html`<select ...${name} value=${value ?? ""} onChange=${event => onChange(event.target.value || null)}>
    ${field.optional && html`<option value="">–</option>`}${field.choices.map(choice => html`<option value=${choice}>${choice}</option>`)}</select>`;
  if (field.kind === "integer" || field.kind === "number") return html`<input type="number" step=${field.kind === "integer" ? 1 : "any"} ...${name} value=${value ?? ""}
    onInput=${event => onChange(event.target.value === "" ? null : Number(event.target.value))} />`;
  if (field.kind === "list") return html`<textarea rows="2" ...${name} value=${(value || []).join("\n")} onInput=${event => onChange(event.target.value.split("\n").map(s => s.trim()).filter(Boolean))}></textarea>`;
  if (field.kind === "text") return html`<input ...${name} value=${value ?? ""} onInput=${event => onChange(event.target.value)} />`;
  return html`<p>${T.editByHand}</p>`;
}

function Field({ field, config, changes, setChange, failure }) {
  const changed = field.key in changes;
  const words = field.key.split(".").slice(-2).join(" ").replaceAll("_", " ");
  return html`<div class="field"><div><h3>${words[0].toUpperCase() + words.slice(1)}</h3><p>${field.help}</p>
    <p>${field.key}, ${config.origin[field.key] === "default" ? T.byDefault : T.inFile}${changed && html`, <span class="changed">${T.changedTo}</span>`}</p>
    ${failure && html`<p class="bad" role="alert">${failure}</p>`}</div>
    <div><${Control} field=${field} value=${changed ? changes[field.key] : config.values[field.key]} onChange=${value => setChange(field.key, value)} /></div></div>`;
}

function SaveBar({ config, changes, onDone, onDiscard, onFailure }) {
  const [review, setReview] = useState(null);
  const number = Object.keys(changes).length;
  const attempt = body => request("PATCH", "api/config", { version: config.version, changes, ...body });
  const fail = error => { setReview(null); onFailure(error); };
  const open = () => attempt({ dry_run: true }).then(setReview, fail);
  const save = () => attempt({ confirm: review.confirm || "" }).then(done => { setReview(null); toast(`${T.saved} ${done.warnings.join(" ")}`); onDone(); }, fail);
  return html`<div class="savebar"><b>${T.changes(number)}</b><span class="space"></span><button onClick=${onDiscard}>${T.discard}</button><button class="primary" onClick=${open}>${T.review}</button>
    ${review && html`<${Dialog} title=${T.review} onClose=${() => setReview(null)}><${Diff} lines=${review.diff.split("\n")} />${review.warnings.map(text => html`<p class="dim">${text}</p>`)}
      <div class="row"><span class="space"></span><button onClick=${() => setReview(null)}>${T.cancel}</button><button class="primary" onClick=${save}>${T.saveNow}</button></div><//>`}</div>`;
}

function Keys() {
  const found = useRequest(() => get("api/keys"), []);
  const store = (name, value) => request(value ? "PUT" : "DELETE", `api/keys/${name}`, value ? { value } : undefined).then(found.again, error => toast(error.message));
  const submit = (event, name) => { event.preventDefault(); const input = event.target.elements.value; const { value } = input; input.value = ""; if (value) store(name, value); };
  return html`<p class="dim">${T.keysHelp}</p><${Pending} of=${found}>${found.data && found.data.data.map(key => html`<div class="field" key=${key.name}><div><h3>${key.name}</h3><p>${key.set ? T.keySet(key.from) : T.keyUnset}</p></div>
    <form class="row" onSubmit=${event => submit(event, key.name)}><input name="value" type="password" autocomplete="off" aria-label=${`${T.newValue}: ${key.name}`} placeholder=${T.newValue} /><button>${T.set}</button>
    ${key.from === ".env" && html`<button type="button" class="quiet" onClick=${() => store(key.name, "")}>${T.remove}</button>`}</form></div>`)}<//>`;
}

function TryCommand() {
  const [answer, setAnswer] = useState(null);
  const submit = event => { event.preventDefault(); post("api/approvals/check", { command: event.target.elements.command.value }).then(setAnswer, error => toast(error.message)); };
  return html`<div class="field"><div><h3>${T.tryCommand}</h3><p>${T.tryHelp}</p></div><form onSubmit=${submit}><input name="command" aria-label=${T.tryCommand} />
    ${answer && html`<p role="status"><b>${T.decisions[answer.decision] || answer.decision}</b>${answer.reasons.length ? `: ${answer.reasons.join("; ")}` : ""}</p>`}</form></div>`;
}

function Browsers() {
  const found = useRequest(() => get("api/web/browsers"), []);
  const end = id => request("DELETE", `api/web/browsers${id ? `?id=${id}` : ""}`).then(found.again, error => toast(error.message));
  return html`<${Pending} of=${found}>${found.data && found.data.data.map(row => html`<div class="field"><div><h3>${row.browser.slice(0, 80) || "–"}</h3><p>${row.address}, ${timeAgo(row.used_at)}${row.current ? `, ${T.thisBrowser}` : ""}</p></div>
    <div><button onClick=${() => end(row.id)}>${T.signOut}</button></div></div>`)}<button class="danger" onClick=${() => end("")}>${T.signOutAll}</button><//>`;
}

function Versions({ onDone }) {
  const found = useRequest(() => get("api/config/versions"), []);
  const restore = version => post("api/config/restore", { version }).then(() => { toast(T.saved); onDone(); }, error => toast(error.message));
  return html`<${Pending} of=${found}>${found.data && (found.data.data.length ? found.data.data.map(row => html`<details class="field"><summary>${new Date(row.saved_at * 1000).toLocaleString()}</summary>
    <pre tabindex="0">${row.text}</pre><button onClick=${() => restore(row.version)}>${T.restore}</button></details>`) : html`<p class="dim">${T.noChange}</p>`)}<//>`;
}

function Section({ name, config, changes, setChange, failure, again }) {
  if (name === "keys") return html`<${Keys} />`;
  if (name === "browsers") return html`<${Browsers} />`;
  if (name === "versions") return html`<${Versions} onDone=${again} />`;
  if (name === "file") return html`<pre tabindex="0" aria-label=${T.file}>${config.file}</pre>`;
  const fields = config.schema.filter(field => field.category === name);
  return html`${fields.map(field => html`<${Field} key=${field.key} field=${field} config=${config} changes=${changes} setChange=${setChange} failure=${failure.key === field.key ? failure.text : ""} />`)}
    ${name === "Safety" && html`<${TryCommand} />`}`;
}

export function Page() {
  const found = useRequest(() => get("api/config"), []);
  const [name, setName] = useState("Models");
  const [words, setWords] = useState("");
  const [changes, setChanges] = useState({});
  const [failure, setFailure] = useState({});
  const config = found.data;
  const setChange = (key, value) => setChanges(before => {
    const next = { ...before, [key]: value };
    if (JSON.stringify(value) === JSON.stringify(config.values[key])) delete next[key];
    return next;
  });
  const onFailure = error => {
    const key = Object.keys(changes).find(k => error.message.includes(k)) || "";
    setFailure({ key, text: error.message });
    toast(error.message);
  };
  const again = () => { setChanges({}); setFailure({}); found.again(); };
  const hits = words.trim() && config ? config.schema.filter(f => `${f.key} ${f.help}`.toLowerCase().includes(words.trim().toLowerCase())) : null;
  return html`<${Pending} of=${found}>${config && html`<input type="search" aria-label=${T.findSetting} placeholder=${T.findSetting} value=${words} onInput=${event => setWords(event.target.value)} />
    <div class="settings"><nav class="categories" aria-label=${T.pages.settings}>${[...config.categories, ...Object.keys(EXTRA)].map(key => html`<button aria-current=${key === name && !hits ? "true" : undefined} onClick=${() => { setName(key); setWords(""); }}>${EXTRA[key] || key}</button>`)}</nav>
    <section aria-label=${EXTRA[name] || name}><h2>${hits ? T.findSetting : EXTRA[name] || name}</h2>
      ${hits ? hits.map(field => html`<${Field} key=${field.key} field=${field} config=${config} changes=${changes} setChange=${setChange} failure="" />`)
        : html`<${Section} key=${name} name=${name} config=${config} changes=${changes} setChange=${setChange} failure=${failure} again=${again} />`}</section></div>
    ${Object.keys(changes).length > 0 && html`<${SaveBar} config=${config} changes=${changes} onDone=${again} onDiscard=${() => { setChanges({}); setFailure({}); }} onFailure=${onFailure} />`}`}<//>`;
}
