// The workbench: what lists led to, which items they show, and an editor of placements with versions.
import { count, number, render, tags } from "./dom.js";
import { latest, send } from "./api.js";
const { main, header, h1, h2, h3, p, section, dl, div, dt, dd, table, thead, tbody, tr, th, td, ol, ul, li, i, b, label, input, button, select, option, textarea, form, a, span } = tags;

const KEY = "recfusion-admin-key";
const state = { key: sessionStorage.getItem(KEY) ?? "", stats: undefined, model: undefined, drafts: [], version: 0, versions: [], error: "", said: "", locked: false };
const percent = (value) => `${number(100 * value, 1)} %`;
const amount = (measure) => (measure === "revenue" ? (value) => number(value, 2) : percent);

async function call(method, path, body) {
	const [{ ok, status }, data] = await send(method, path, state.key ? { Authorization: `Bearer ${state.key}` } : {}, body);
	if (status === 401 || status === 403) throw Object.assign(new Error(data?.error ?? "This needs the admin key."), { locked: true });
	if (!ok || !data) throw new Error(data?.error ?? `The service answered ${status}.`);
	return data;
}

async function attempt(job) {
	try {
		state.error = "";
		await job();
	} catch (error) {
		state.locked = Boolean(error.locked);
		state.error = !state.locked ? error.message : state.key ? "This key does not open the workbench." : "";
	}
	draw();
}

const load = () => attempt(async () => {
	[state.stats, state.model] = await Promise.all([call("GET", "admin/stats"), call("GET", "model")]);
	take(await call("GET", "admin/placements"));
	state.locked = false;
});

// ---- placements: name and kind, common fields as controls, all others as JSON
const COMMON = ["kind", "model", "where", "k"];
function take({ version, placements, versions }) {
	Object.assign(state, { version, versions, dirty: false });
	state.drafts = Object.entries(placements).map(([name, values]) => draft(name, values));
	state.drafts.forEach(keeps);
}
function draft(name, values) {
	const rest = Object.fromEntries(Object.entries(values).filter(([field]) => !COMMON.includes(field)));
	return { id: crypto.randomUUID(), name, kind: values.kind ?? "recommend", model: values.model ?? "", where: values.where ?? "", k: values.k ?? "", rest: Object.keys(rest).length ? JSON.stringify(rest, null, 1) : "" };
}
function written(one) {
	let rest = {};
	try {
		rest = one.rest.trim() ? JSON.parse(one.rest) : {};
	} catch {
		throw new Error(`The other settings of ${one.name || "a placement"} are not valid JSON.`);
	}
	return { ...rest, ...(one.kind !== "recommend" && { kind: one.kind }), ...(one.model && { model: one.model }), ...(one.where.trim() && { where: one.where }), ...(one.k !== "" && { k: Number(one.k) }) };
}
async function keep(one) {
	try {
		const found = await call("POST", "admin/count", { where: one.where.trim() || null, ...(one.model && { model: one.model }) });
		one.keeps = `keeps ${number(found.keeps)} of ${number(found.of)}`;
		one.wrong = false;
	} catch (error) {
		[one.keeps, one.wrong] = [error.message, true];
	}
	draw();
}
const keeps = (one) => (one.counting ??= latest(keep))(one); // one request at a time for each placement
function edit(one, field, value) {
	one[field] = value;
	state.dirty = true;
	if (field === "where" || field === "model") keeps(one);
	draw();
}
const save = () => attempt(async () => {
	const names = state.drafts.map((one) => one.name.trim());
	if (names.some((name) => !name)) throw new Error("A placement has no name.");
	if (new Set(names).size < names.length) throw new Error("Two placements have the same name.");
	const placements = Object.fromEntries(state.drafts.map((one) => [one.name.trim(), written(one)]));
	take(await call("PUT", "admin/placements", { placements, version: state.version }));
	state.said = `Version ${state.version} is in use.`;
});
const undo = () => attempt(async () => {
	take(await call("POST", "admin/placements/undo", { version: state.version }));
	state.said = `The placements of before are in use again, as version ${state.version}.`;
});

// Words that may come next: a column, then an operator, then a value, then "and".
function suggestions(one) {
	const words = one.where.trimEnd(), open = /(^|\b(and|or|not)|\()$/i.test(words), columns = state.model?.columns ?? [];
	if (open) return columns.map((column) => column.name);
	const column = columns.find((each) => words.toLowerCase().endsWith(each.name.toLowerCase()));
	if (column) return column.kind === "number" ? [">", ">=", "<", "<=", "=", "!="] : column.kind === "boolean" ? ["= true", "= false"] : ["=", "!=", "in"];
	const asked = columns.find((each) => new RegExp(`${each.name.replace(/\W/g, "\\$&")}\\s*(=|!=)$`, "i").test(words));
	if (asked) return asked.values.slice(0, 12).map((value) => (typeof value === "string" ? `'${value.replaceAll("'", "''")}'` : String(value)));
	return /[<>=!]$/.test(words) ? [] : ["and", "or"]; // a number has no suggestion
}

// ---- views
const cells = (...texts) => texts.map((text) => (typeof text === "number" ? td({ class: "n" }, number(text)) : td({}, text)));
// A column whose title ends with "#" holds numbers.
const rows = (head, body, more = "") => div({ class: `scroll ${more}`, tabindex: 0 }, table({}, thead({}, tr({}, head.map((text) => th({ scope: "col", class: text.endsWith("#") ? "n" : "" }, text.replace(" #", ""))))), tbody({}, body)));

function daily() {
	const { lists, days } = state.stats, today = Math.floor(Date.now() / 86400000), totals = new Map();
	for (const row of lists) totals.set(row.day, (totals.get(row.day) ?? 0) + row.lists);
	const shown = Array.from({ length: days }, (_, n) => [today - days + 1 + n, totals.get(today - days + 1 + n) ?? 0]);
	const most = Math.max(1, ...shown.map(([, n]) => n));
	return section({}, h2({}, "Lists per day"), p({ class: "note" }, `The last ${days} days; at most ${count(most, "list")} on a day.`),
		div({ class: "days", role: "img", "aria-label": `Lists per day, ${count(totals.get(today) ?? 0, "list")} today` },
			shown.map(([day, n]) => i({ key: day, title: `${new Date(day * 86400000).toISOString().slice(0, 10)}: ${count(n, "list")}`, style: { "--height": `${100 * n / most}%` } }))));
}

function summary() {
	const { stats } = state, sum = (values, field) => values.reduce((all, row) => all + row[field], 0), { catalogue } = stats;
	const figures = [["Lists", number(sum(stats.lists, "lists"))], ["Events", number(sum(stats.events, "events"))],
		["Items shown", `${number(catalogue.shown)} of ${number(catalogue.items)}`], ["Concentration (Gini, 0 to 1)", catalogue.gini === null ? "–" : number(catalogue.gini, 2)]];
	return section({}, h2({}, `The last ${stats.days} days`), dl({ class: "figures" }, figures.map(([name, value]) => div({ key: name }, dt({}, name), dd({}, value)))));
}

function outcomes(by) {
	const found = state.stats.outcomes[by];
	if (!found.length) return p({ class: "note" }, "No lists yet.");
	const body = found.map((one) => {
		const show = amount(one.measure), scale = Math.max(...found.filter((each) => each.measure === one.measure).map((each) => each.ci95[1])) || 1;
		const at = (value) => `${100 * Math.max(0, Math.min(1, value / scale))}%`;
		return tr({ key: one.measure + one.name }, cells(one.measure, one.name || "without a placement", one.lists), td({ class: "n" }, show(one.rate)),
			td({}, div({ class: "range", style: { "--from": at(one.ci95[0]), "--width": at(one.ci95[1] - Math.max(0, one.ci95[0])), "--at": at(one.rate) } }, i({}), b({})), span({ class: "note" }, `${show(one.ci95[0])} to ${show(one.ci95[1])}`)));
	});
	return rows(["measure", by, "lists #", "per list #", "95 % interval, may be checked daily"], body);
}

const named = (items, more) => (items.length ? ol({}, items.map((item) => li({ key: item.item }, item.name, more?.(item)))) : p({ class: "note" }, "None."));

function editor(one) {
	const change = (field) => (event) => edit(one, field, event.target.value);
	const add = (word) => {
		edit(one, "where", `${one.where.trimEnd()}${one.where.trim() && !/\($/.test(one.where) ? " " : ""}${word} `);
		const field = document.getElementById(one.id);
		field.focus();
		field.setSelectionRange(field.value.length, field.value.length);
	};
	return li({ class: "placement", key: one.id },
		div({ class: "fields" },
			label({}, "Name", input({ type: "text", value: one.name, oninput: change("name") })),
			label({}, "Kind", select({ value: one.kind, onchange: change("kind") }, ["recommend", "similar", "complete"].map((kind) => option({ value: kind, key: kind }, kind)))),
			label({}, "Model", select({ value: one.model, onchange: change("model") }, option({ value: "", key: "" }, "the service's choice"), state.model.models.map((each) => option({ value: each.name, key: each.name }, each.name)))),
			one.kind !== "complete" && label({}, "Items in a list (k)", input({ type: "number", min: 1, value: one.k, oninput: change("k") }))),
		label({}, "Only items where", input({ id: one.id, type: "text", value: one.where, spellcheck: "false", placeholder: "all items", oninput: change("where") })),
		div({ class: "suggest" }, suggestions(one).map((word) => button({ class: "chip", key: word, type: "button", onclick: () => add(word) }, word))),
		p({ class: `keeps ${one.wrong ? "error" : "note"}`, role: "status" }, one.keeps ?? ""),
		label({}, "Other settings (JSON): reranking, pins, boosts, limits", textarea({ value: one.rest, spellcheck: "false", oninput: change("rest") })),
		div({ class: "buttons" }, button({ class: "quiet", type: "button", onclick: () => { state.drafts = state.drafts.filter((each) => each !== one); state.dirty = true; draw(); } }, "Remove")));
}

function placements() {
	const add = () => { state.drafts.push(draft("", {})); state.dirty = true; draw(); };
	const past = state.versions.slice(0, 10).map((one) => tr({ key: one.version }, cells(one.version, new Date(1000 * one.time).toLocaleString("en"), one.change, one.names.join(", ") || "none")));
	return section({}, h2({}, "Placements"), p({ class: "note" }, "A request names a placement, which sets its filters and re-ranking. A saved version is used at once by all processes; a newer file of the shop replaces it."),
		ul({}, state.drafts.map(editor)),
		div({ class: "buttons" }, button({ class: "plain", type: "button", onclick: add }, "Add a placement"), button({ class: "plain primary", type: "button", disabled: !state.dirty, onclick: save }, "Save"),
			button({ class: "plain", type: "button", disabled: state.versions.length < 2, onclick: undo }, "Undo the last version"), span({ class: "note", role: "status" }, state.said)),
		past.length > 0 && [h3({}, "Versions"), rows(["version #", "time", "change", "placements"], past)]);
}

function view() {
	const { stats } = state;
	if (state.locked) return section({}, h2({}, "Admin key"), p({ class: "lead" }, "The workbench needs the key that serve reads from --admin-key-env, or one with the scope admin. It stays in this tab."),
		form({ class: "buttons", onsubmit: (event) => { event.preventDefault(); sessionStorage.setItem(KEY, state.key); load(); } },
			label({ class: "hidden", for: "key" }, "Admin key"), input({ id: "key", type: "password", autocomplete: "off", value: state.key, oninput: (event) => { state.key = event.target.value.trim(); } }), button({ class: "plain primary" }, "Open")));
	if (!stats) return !state.error && p({ class: "note" }, "Reading the numbers …");
	const kinds = Object.entries(stats.events.reduce((all, row) => ({ ...all, [row.kind]: (all[row.kind] ?? 0) + row.events }), {}));
	return [summary(), daily(),
		section({}, h2({}, "What lists led to"), h3({}, "By model"), outcomes("model"), h3({}, "By placement"), outcomes("placement")),
		section({}, h2({}, "Events"), kinds.length ? rows(["kind", "events #"], kinds.map(([kind, n]) => tr({ key: kind }, cells(kind, n))), "short") : p({ class: "note" }, "No events yet.")),
		section({ class: "pair" }, div({}, h2({}, "Popular, but in no list"), named(stats.catalogue.never)), div({}, h2({}, "Most often hidden by users"), named(stats.catalogue.hidden, (item) => span({ class: "note" }, ` ${number(item.events)}`)))),
		placements(),
		section({}, h2({}, "Speed"), rows(["route", "requests #", "median #", "95 % #", "99 % #"], stats.latency.map((one) => tr({ key: one.route }, cells(one.route, one.requests), [one.median, one.p95, one.p99].map((value) => td({ class: "n" }, value === null ? "over 10 s" : `at most ${number(1000 * value)} ms`))))))];
}

function draw() {
	render([header({}, p({ class: "kicker" }, a({ href: "." }, "recfusion")), h1({}, "Workbench"), state.stats && !state.locked && button({ class: "quiet", type: "button", onclick: load, disabled: state.dirty }, "Read the numbers again")),
		main({ class: "bench" }, state.error && p({ class: "error", role: "alert" }, state.error), view())], document.getElementById("app"));
}

addEventListener("beforeunload", (event) => state.dirty && event.preventDefault());
draw();
load();
