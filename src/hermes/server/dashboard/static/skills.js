/** Skills on the page Knowledge: where they are from, what a scan finds, what the agent proposes. */
import { useState } from "./vendor-preact-hooks.js";
import { get, post, toast } from "./data.js";
import { Dialog, Diff, html, Pending, revealed, State, useRequest } from "./ui.js";
import { Bundle, Preview } from "./bundle.js";
import { T } from "./text.js";

function Proposal({ row, change }) {
  return html`<li class="entry"><div class="row wrap"><span><${State} kind="warn" label=${T.waiting} /> <b>${row.name}</b> <span class="dim">${row.action}${row.file ? `, ${row.file}` : ""}</span></span><span class="space"></span>
      <button class="primary" onClick=${() => change({ verb: "approve", name: row.id })}>${T.accept}</button><button onClick=${() => change({ verb: "reject", name: row.id })}>${T.reject}</button></div>
    ${row.why && html`<p class="dim">${revealed(row.why)}</p>`}${row.diff && html`<${Diff} lines=${row.diff.split("\n")} />`}</li>`;
}

function describeSkill(row) {
  const parts = [row.source, row.installed_from && T.installedFrom(row.installed_from), row.disabled && T.off, row.problem, row.unmet, row.changed.length > 0 && T.changedHere(row.changed.join(", "))];
  return parts.filter(Boolean).join(", ");
}

function Skill({ row, change }) {
  const [shown, setShown] = useState(null);
  const [update, setUpdate] = useState(null);
  const open = () => get(`api/skills/${encodeURIComponent(row.name)}`).then(setShown, error => toast(error.message));
  const look = () => change({ verb: "update", name: row.name }).then(found => found && found.preview && setUpdate(found.preview));
  const install = () => { change({ verb: "update", name: row.name, confirm: update.digest }); setUpdate(null); };
  const kind = row.problem ? "failed" : row.disabled ? "idle" : row.unmet ? "warn" : "done";
  return html`<li class="entry"><div class="row wrap"><span><${State} kind=${kind} label=${row.problem || row.unmet || (row.disabled ? T.off : T.on)} /> <b>${row.name}</b></span><span class="space"></span>
      <button class="quiet" aria-label=${`${T.open}: ${row.name}`} onClick=${open}>${T.open}</button>
      ${row.installed_from && html`<button class="quiet" onClick=${look}>${T.update}</button>`}
      <button class="quiet" aria-label=${`${row.disabled ? T.enable : T.disable}: ${row.name}`} onClick=${() => change({ verb: row.disabled ? "enable" : "disable", name: row.name })}>${row.disabled ? T.enable : T.disable}</button>
      ${row.source !== "builtin" && html`<button class="quiet bad" aria-label=${`${T.remove}: ${row.name}`} onClick=${() => change({ verb: "remove", name: row.name })}>${T.remove}</button>`}</div>
    <p>${revealed(row.description)}</p><p class="dim">${describeSkill(row)}</p>
    ${update && html`<${Preview} shown=${update} onInstall=${install} onClose=${() => setUpdate(null)} />`}
    ${shown && html`<${Dialog} title=${row.name} onClose=${() => setShown(null)}>${shown.findings.length > 0 ? html`<div class="card ask"><h3>${T.scanFound}</h3><ul>${shown.findings.map(text => html`<li>${text}</li>`)}</ul></div>` : html`<p class="dim">${T.scanClean}</p>`}
      <pre tabindex="0">${shown.text}</pre><div class="row"><span class="space"></span><button onClick=${() => setShown(null)}>${T.close}</button></div><//>`}</li>`;
}

export function Skills() {
  const [words, setWords] = useState("");
  const found = useRequest(() => get(`api/skills?q=${encodeURIComponent(words)}`), [words]);
  const change = body => post("api/skills", body).then(done => { if (done.lines.length) toast(done.lines.join(" ")); found.again(); return done; }, error => { toast(error.message); found.again(); return null; });
  return html`<section class="card" aria-label=${T.skills}><h2>${T.skills}</h2>
    <input type="search" aria-label=${T.findSkill} placeholder=${T.findSkill} value=${words} onInput=${event => setWords(event.target.value)} />
    <${Pending} of=${found}>${found.data && html`<ul class="list">${found.data.pending.map(row => html`<${Proposal} key=${row.id} row=${row} change=${change} />`)}
      ${found.data.data.map(row => html`<${Skill} key=${row.name} row=${row} change=${change} />`)}</ul>${!found.data.data.length && html`<p class="dim">${T.noSkills}</p>`}`}<//>
    <${Bundle} path="api/skills" label=${T.skillSource} again=${found.again} /></section>`;
}
