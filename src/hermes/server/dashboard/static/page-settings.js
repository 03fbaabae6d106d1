/** The page Settings: a form by category, and beside it models, keys, rules, browsers, versions, the file. */
import { useEffect, useRef, useState } from "./vendor-preact-hooks.js";
import { get, request, toast } from "./data.js";
import { Dialog, Diff, html, Pending, Segments, useRequest } from "./ui.js";
import { Browsers, Keys, Models, Rules, Versions } from "./settings-parts.js";
import { T } from "./text.js";

const FEW = 4;
const AT = /^#\/settings\/([\w.-]+)/;

/** One value a line. What is being written stays as it is, empty lines too. */
function Lines({ name, value, onChange }) {
  const [text, setText] = useState(null);
  const read = written => written.split("\n").map(line => line.trim()).filter(Boolean);
  const given = (value || []).join("\n");
  const shown = text !== null && read(text).join("\n") === given ? text : given;
  return html`<textarea rows="2" ...${name} value=${shown} onInput=${event => { setText(event.target.value); onChange(read(event.target.value)); }}></textarea>`;
}

function Control({ field, value, onChange }) {
  const name = { "aria-label": field.key };
  if (field.kind === "bool") return html`<input type="checkbox" role="switch" class="switch" ...${name} checked=${value} onChange=${event => onChange(event.target.checked)} />`;
  if (field.kind === "choice" && field.choices.length <= FEW && !field.optional)
    return html`<${Segments} label=${field.key} options=${Object.fromEntries(field.choices.map(choice => [choice, choice]))} value=${value} onChange=${onChange} />`;
  if (field.kind === "choice") return html`<select ...${name} value=${value ?? ""} onChange=${event => onChange(event.target.value || null)}>
    ${field.optional && html`<option value="">–</option>`}${field.choices.map(choice => html`<option value=${choice}>${choice}</option>`)}</select>`;
  if (field.kind === "integer" || field.kind === "number") return html`<input type="number" step=${field.kind === "integer" ? 1 : "any"} ...${name} value=${value ?? ""}
    onInput=${event => onChange(event.target.value === "" ? null : Number(event.target.value))} />`;
  if (field.kind === "list") return html`<${Lines} name=${name} value=${value} onChange=${onChange} />`;
  if (field.kind === "text") return html`<input ...${name} value=${value ?? ""} onInput=${event => onChange(event.target.value)} />`;
  return html`<p>${field.key === "approvals.rules" ? T.editAbove : T.editByHand}</p>`;
}

const show = value => Array.isArray(value) ? value.join(", ") || "–" : value === null || value === undefined || value === "" ? "–" : String(value);

function Field({ field, config, changes, setChange, failure }) {
  const changed = field.key in changes;
  const words = field.key.split(".").slice(-2).join(" ").replaceAll("_", " ").replace(/\b(usd|url|mcp|api|id|ssh|tls|cpu|mb)\b/g, word => word.toUpperCase());
  const origin = config.origin[field.key];
  return html`<div class="field" data-key=${field.key}><div><h3>${words[0].toUpperCase() + words.slice(1)}</h3><p>${field.help}</p>
    <p class="small">${field.key}, ${T.origins[origin] || origin}${origin !== "default" && field.kind !== "other" && html`, ${T.defaultIs(show(field.default))}`}
      ${origin === "file" && field.kind !== "other" && !changed && html` <button class="quiet" aria-label=${`${T.useDefault}: ${field.key}`} onClick=${() => setChange(field.key, null)}>${T.useDefault}</button>`}</p>
    ${changed && html`<p class="changed small">${T.changedTo}: ${show(config.values[field.key])} → ${changes[field.key] === null ? T.byDefault : show(changes[field.key])}</p>`}
    ${failure && html`<p class="bad" role="alert">${failure}</p>`}</div>
    <div><${Control} field=${field} value=${changed ? changes[field.key] ?? field.default : config.values[field.key]} onChange=${value => setChange(field.key, value)} /></div></div>`;
}

function SaveBar({ config, changes, onDone, onDiscard, onFailure }) {
  const [review, setReview] = useState(null);
  const attempt = body => request("PATCH", "api/config", { version: config.version, changes, ...body });
  const fail = error => { setReview(null); onFailure(error); };
  const open = () => attempt({ dry_run: true }).then(setReview, fail);
  const save = () => attempt({ confirm: review.confirm || "" }).then(done => { setReview(null); toast(`${T.saved} ${done.warnings.join(" ")}`); onDone(); }, fail);
  return html`<div class="savebar" role="region" aria-label=${T.unsaved}><b>${T.changes(Object.keys(changes).length)}</b><span class="space"></span>
    <button onClick=${onDiscard}>${T.discard}</button><button class="primary" onClick=${open}>${T.review}</button>
    ${review && html`<${Dialog} title=${T.review} onClose=${() => setReview(null)}><${Diff} lines=${review.diff.split("\n")} />${review.warnings.map(text => html`<p class="dim">${text}</p>`)}
      <div class="row"><span class="space"></span><button onClick=${() => setReview(null)}>${T.cancel}</button><button class="primary" onClick=${save}>${T.saveNow}</button></div><//>`}</div>`;
}

const PARTS = {
  browsers: () => html`<${Browsers} />`,
  versions: ({ again }) => html`<${Versions} onDone=${again} />`,
  file: ({ config }) => html`<pre tabindex="0" role="region" aria-label=${T.file}>${config.file || "–"}</pre>`,
};

function Section({ name, fields, again, config, failures, ...form }) {
  if (PARTS[name]) return PARTS[name]({ again, config });
  return html`${name === "Models" && html`<${Models} /><${Keys} />`}${name === "Safety" && html`<${Rules} />`}
    ${fields.map(field => html`<${Field} key=${field.key} field=${field} config=${config} failure=${failures[field.key]} ...${form} />`)}`;
}

/** What the user has changed and not saved, and what the server said about each. */
function useChanges(config) {
  const [changes, setChanges] = useState({});
  const [failures, setFailures] = useState({});
  const setChange = (key, value) => setChanges(before => {
    const next = { ...before, [key]: value };
    if (JSON.stringify(value) === JSON.stringify(config.values[key])) delete next[key];
    return next;
  });
  const onFailure = error => {
    setFailures(error.problems || { [error.param || ""]: error.message });
    toast(error.message);
  };
  return { changes, failures, setChange, onFailure, clear: () => { setChanges({}); setFailures({}); } };
}

/** A category that the address may name, or the setting that it names. */
function readPlace(config) {
  const wanted = (AT.exec(location.hash) || [])[1] || "";
  if (config.categories.includes(wanted) || wanted in PARTS) return { name: wanted, words: "" };
  return { name: config.categories[0], words: config.schema.some(field => field.key === wanted) ? wanted : "" };
}

function Form({ config, again }) {
  const [{ name, words }, setPlace] = useState(() => readPlace(config));
  const { clear, onFailure, ...form } = useChanges(config);
  const search = useRef(null);
  useEffect(() => {
    const listener = () => AT.test(location.hash) && setPlace(readPlace(config));
    addEventListener("hashchange", listener);
    return () => removeEventListener("hashchange", listener);
  }, [config]);
  const reload = () => { clear(); again(); };
  const wanted = words.trim().toLowerCase();
  const fields = config.schema.filter(field => wanted ? `${field.key} ${field.help}`.toLowerCase().includes(wanted) : field.category === name);
  const onKey = event => { if (event.key === "/" && !event.target.closest("input, textarea, select")) { event.preventDefault(); search.current.focus(); } };
  const part = T.settingsParts[name] || name;
  return html`<div class="settings" onKeyDown=${onKey}><div class="categories"><input ref=${search} type="search" aria-label=${T.findSetting} placeholder=${T.findSetting} value=${words} onInput=${event => setPlace({ name, words: event.target.value })} />
    <nav aria-label=${T.pages.settings}>${[...config.categories, ...Object.keys(PARTS)].map(key => html`<button aria-current=${key === name && !wanted ? "true" : undefined} onClick=${() => setPlace({ name: key, words: "" })}>${T.settingsParts[key] || key}</button>`)}</nav></div>
    <section aria-label=${wanted ? T.findSetting : part}><h2>${wanted ? T.findSetting : part}</h2>
      ${config.problems.length > 0 && html`<div class="failure" role="alert">${config.problems.map(text => html`<p>${text}</p>`)}</div>`}
      ${wanted && !fields.length && html`<p class="dim">${T.foundNothing}</p>`}
      <${Section} key=${wanted ? "found" : name} name=${wanted ? "" : name} fields=${fields} config=${config} again=${reload} ...${form} /></section></div>
    ${Object.keys(form.changes).length > 0 && html`<${SaveBar} config=${config} changes=${form.changes} onDone=${reload} onDiscard=${clear} onFailure=${onFailure} />`}`;
}

export function Page() {
  const found = useRequest(() => get("api/config"), []);
  return html`<${Pending} of=${found}>${found.data && html`<${Form} config=${found.data} again=${found.again} />`}<//>`;
}
