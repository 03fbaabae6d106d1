/** The page Knowledge: what the agent remembers, by scope, what waits for approval, and skills. */
import { get, post, toast } from "./data.js";
import { html, Pending, timeAgo, useRequest } from "./ui.js";
import { Skills } from "./skills.js";
import { T } from "./text.js";

function FactRow({ fact, children }) {
  return html`<div class="field"><div><p>${fact.text}</p><p class="dim">${fact.name}, ${fact.target === "user" ? T.aboutUser : T.aboutWork}, ${timeAgo(fact.created)}${fact.origin ? `, ${fact.origin}` : ""}</p></div>
    <div class="row wrap">${children}</div></div>`;
}

function Scope({ row, again }) {
  const change = (verb, words, target = null) => post("api/memory", { verb, words, target, scope: row.scope }).then(again, error => toast(error.message));
  const add = event => { event.preventDefault(); const field = event.target.elements.text; if (field.value.trim()) change("add", field.value.trim()); field.value = ""; };
  return html`<section class="card"><h2>${T.memoryOf(row.scope)}</h2>
    ${row.pending.map(fact => html`<${FactRow} key=${fact.name} fact=${{ ...fact, text: `${fact.action === "add" ? "" : `${fact.action}: `}${fact.text}` }}>
      <button class="primary" onClick=${() => change("approve", fact.name)}>${T.accept}</button><button onClick=${() => change("reject", fact.name)}>${T.reject}</button><//>`)}
    ${!row.facts.length && !row.pending.length && html`<p class="dim">${T.noFacts}</p>`}
    ${row.facts.map(fact => html`<${FactRow} key=${fact.name} fact=${fact}><button class="quiet" onClick=${() => change("remove", fact.name)}>${T.forget}</button><//>`)}
    <form class="row" onSubmit=${add}><input name="text" aria-label=${T.newFact} placeholder=${T.newFact} /><button>${T.add}</button></form></section>`;
}

export function Page() {
  const found = useRequest(() => get("api/memory"), []);
  return html`<${Pending} of=${found}>${found.data && found.data.data.map(row => html`<${Scope} key=${row.scope} row=${row} again=${found.again} />`)}<//><${Skills} />`;
}
