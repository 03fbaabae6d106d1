/** The page Schedule: jobs with their next times and runs; add, edit, run, pause and remove them. */
import { useState } from "./vendor-preact-hooks.js";
import { get, post, request, toast, useNews } from "./data.js";
import { html, Pending, State, timeAgo, timeOf, useRequest } from "./ui.js";
import { T } from "./text.js";

const Times = ({ of }) => of.map((time, n) => html`${n ? ", " : ""}${timeOf(time)}`);

/** The fields of a job, with the times at which it would run. `send` takes what is written and whether only to look. */
function JobForm({ job, send, onDone, onCancel }) {
  const [preview, setPreview] = useState(job || null);
  const [failure, setFailure] = useState("");
  const read = form => Object.fromEntries(["schedule", "prompt", ...(job ? ["name"] : [])].map(name => [name, form.elements[name].value.trim()]));
  const look = event => {
    const body = read(event.currentTarget);
    if (body.schedule && body.prompt) send({ ...body, dry_run: true }).then(found => { setPreview(found); setFailure(""); }, error => { setPreview(null); setFailure(error.message); });
  };
  const save = event => {
    event.preventDefault();
    const form = event.currentTarget;
    send(read(form)).then(() => { form.reset(); setPreview(null); setFailure(""); onDone(); }, error => setFailure(error.message));
  };
  return html`<form class="card" onSubmit=${save} onChange=${look}><h2>${job ? `${T.edit}: ${job.name}` : T.newJob}</h2>
    ${job && html`<label>${T.jobName}<input name="name" defaultValue=${job.name} required /></label>`}
    <label>${T.when}<input name="schedule" placeholder="daily 09:00" defaultValue=${job ? job.schedule : ""} required /></label>
    <label>${T.prompt}<textarea name="prompt" rows="2" defaultValue=${job ? job.prompt : ""} required></textarea></label>
    ${preview && preview.next_times.length > 0 && html`<p class="dim" role="status">${T.nextTimes}: <${Times} of=${preview.next_times} /></p>`}
    ${failure && html`<p class="bad" role="alert">${failure}</p>`}
    <div class="row"><button class="primary">${job ? T.save : T.add}</button>${onCancel && html`<button type="button" onClick=${onCancel}>${T.cancel}</button>`}</div></form>`;
}

function Job({ job, again }) {
  const act = work => work.then(again, error => toast(error.message));
  const change = action => act(post(`api/jobs/${job.id}`, { action }));
  const [editing, setEditing] = useState(false);
  const stop = () => setEditing(false);
  if (editing) return html`<${JobForm} job=${job} send=${body => request("PATCH", `api/jobs/${job.id}`, body)} onDone=${() => { stop(); again(); }} onCancel=${stop} />`;
  return html`<section class="card"><h2>${job.name}</h2><p class="dim">${job.schedule}${job.paused ? `, ${T.paused}` : ""}</p>
    ${job.next_times.length > 0 && html`<p>${T.nextTimes}: <${Times} of=${job.next_times} /></p>`}
    <div class="row wrap"><button onClick=${() => change("run")}>${T.runNow}</button><button aria-label=${`${T.edit}: ${job.name}`} onClick=${() => setEditing(true)}>${T.edit}</button>
      <button onClick=${() => change(job.paused ? "resume" : "pause")}>${job.paused ? T.resume : T.pause}</button>
      <button class="danger" onClick=${() => act(request("DELETE", `api/jobs/${job.id}`))}>${T.remove}</button></div>
    ${job.history.length > 0 && html`<details><summary>${T.history}</summary><ul>${job.history.map(run => html`<li class="fact"><span><${State} kind=${run.state === "ok" ? "done" : run.state === "running" ? "running" : "failed"} label=${run.state} /> ${run.state}</span>
      <span class="ellipsis">${run.error || run.text}</span><span class="dim">${run.session ? html`<a href=${`#/c/${run.session}`}>${timeAgo(run.due)}</a>` : timeAgo(run.due)}</span></li>`)}</ul></details>`}</section>`;
}

export function Page() {
  const found = useRequest(() => get("api/jobs"), []);
  useNews("job", found.again);
  return html`<${JobForm} send=${body => post("api/jobs", body)} onDone=${found.again} /><${Pending} of=${found}>${found.data && (found.data.data.length
    ? found.data.data.map(job => html`<${Job} key=${job.id} job=${job} again=${found.again} />`) : html`<p class="dim">${T.noJobs}</p>`)}<//>`;
}
