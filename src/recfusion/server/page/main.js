// The page: it asks the service who it is, draws the state, and asks again for what a change makes stale.
import { count, render, still, tags } from "./dom.js";
import { ask, latest, takeToken } from "./api.js";
import { VIEWS, change, fragment, name, onChange, read, state, turn } from "./store.js";
import { condition, request } from "./settings.js";
import { controls } from "./controls.js";
import { shelf } from "./search.js";
import { list } from "./list.js";
import { compare, models } from "./compare.js";
import { WAYS, complete } from "./complete.js";
import { begin, nSteps, steps } from "./steps.js";
import { model } from "./model.js";

const { a, aside, button, div, footer, h1, header, main, nav, p, strong } = tags;
const MAKERS = { list, compare, complete, steps, model };

// What the view needs, as questions: purpose -> [path, body].
function needs() {
	const { shelf, hidden, view, k, model: service } = state, asked = {}, own = { model: state.now.model || service.models[0].name };
	const rest = { history: shelf, deny: hidden, k }, where = condition(state.now, service.columns);
	if (view === "list") asked.list = ["recommend", request(state.now, service, { ...rest, why: 3 })];
	if (view === "compare") for (const side of ["kept", "now"]) asked[side] = ["recommend", request(state[side], service, rest)];
	if (view === "complete" && shelf.length) {
		asked.complete = ["complete", { ...own, history: shelf, deny: hidden, n: state.n, alternatives: WAYS.length, together: state.together, ...(where && { where }) }];
	}
	if (view === "steps" && shelf.length) asked.steps = ["steps", { ...own, history: shelf, steps: nSteps(), seed: state.seed }];
	if (state.similar) asked.similar = ["similar", { ...own, item: state.similar, k: 8 }];
	if (state.query.trim()) asked.search = ["items?" + new URLSearchParams({ query: state.query.trim().slice(0, 200), limit: 8 })];
	const nameless = [...shelf, state.similar].filter((item) => item && !(item in state.names));
	if (nameless.length) asked.names = ["recommend", { history: nameless, allow: nameless, include_seen: true, k: nameless.length }];
	return asked;
}

const askers = {};
function refresh() {
	for (const [purpose, [path, body]] of Object.entries(needs())) {
		const asked = path + JSON.stringify(body), last = state.answers[purpose];
		if (last?.asked === asked) continue;
		state.answers[purpose] = { ...last, asked };
		askers[purpose] ??= latest(answer);
		askers[purpose](purpose, path, body, asked);
	}
}

async function answer(purpose, path, body, key) {
	const begun = performance.now(), query = state.query.trim(), found = { query };
	try {
		found.data = await ask(path, body);
	} catch (error) {
		found.error = error.message;
		if (purpose === "list") found.data = state.answers.list.data; // the last good list stays in sight
	}
	state.answers[purpose] = { ...found, key, asked: state.answers[purpose].asked, ms: performance.now() - begun };
	if (purpose === "names") {
		for (const item of body.history) state.names[item] = item;
		name(found.data?.items ?? []);
	}
	if (purpose === "steps" && found.data) begin();
	else draw();
	say(purpose, found);
}

// Said once things are at rest: a moving slider is no flood of words.
let saying;
function say(purpose, { data, error }) {
	const items = data?.items ?? [];
	const words = error || {
		list: () => `${count(items.length, "item")}; first ${items.slice(0, 3).map(({ name }) => name).join(", ")}.`,
		now: () => document.querySelector(".compare .lead")?.textContent,
		complete: () => `${data.alternatives.length} ways to complete the shelf.`,
		similar: () => `${items.length} similar items.`,
		search: () => state.open && `${count(items.length, "title")} found.`,
	}[purpose]?.();
	if (!words) return;
	clearTimeout(saying);
	saying = setTimeout(() => (document.getElementById("said").textContent = words), 400);
}

function app() {
	if (!state.model) return [main({ class: "waiting" }, p({ class: "lead", role: state.failed && "alert" }, state.failed || "Loading …"))];
	const shown = state.model.models.find(({ name }) => name === state.now.model) ?? state.model.models[0], { items, users } = shown.trained_on;
	return [
		button({ class: "skip", onclick: () => document.querySelector("main").focus() }, "To the list"),
		header(null,
			div({ class: "head kicker" }, p(null, "recfusion"), button({ class: "quiet", onclick: share }, state.told || "Copy link to this view")),
			h1(null, "What next?"),
			div({ class: "who" }, p(null, strong(null, shown.name), ` knows ${count(items, "item")}`, users ? ` from what ${count(users, "person", "people")} had.` : "."), models(state.now, (model) => turn({ model }, true)))),
		div({ class: "desk" },
			aside({ class: "left", "aria-label": "Shelf and knobs" }, shelf(), controls()),
			main({ tabindex: -1, "aria-busy": String(Object.values(state.answers).some(({ key, asked }) => key !== asked)) },
				nav({ "aria-label": "Views" },
					Object.entries(VIEWS).map(([view, title]) => a({ key: view, href: fragment({ view }), "aria-current": state.view === view && "page" }, title))),
				MAKERS[state.view]())),
		footer(null, p(null, "Your shelf is in this page and its address; the service makes lists of it and keeps no record.")),
	];
}

async function share() {
	history.replaceState(null, "", fragment());
	try {
		await navigator.clipboard.writeText(location.href);
		change({ told: "Copied" });
	} catch {
		change({ told: "Copy it from the address bar" }); // without https there may be no clipboard
	}
	setTimeout(() => change({ told: "" }), 2500);
}

// Draws the state: items that moved glide to their new places, and the focus stays where it was.
function draw() {
	const rows = () => [...document.querySelectorAll("[data-flip]")].map((row) => [row, row.dataset.flip, row.getBoundingClientRect().top]);
	const before = new Map(rows().map(([, item, top]) => [item, top])), spot = document.activeElement?.dataset.spot;
	render(app(), document.getElementById("app"));
	if (spot && document.activeElement.dataset.spot !== spot) document.querySelector(`[data-spot="${spot}"]`)?.focus();
	document.getElementById(`found-${state.active}`)?.scrollIntoView({ block: "nearest" });
	if (still.matches || !before.size) return;
	for (const [row, item, top] of rows()) {
		const by = before.get(item) - top;
		if (by !== 0) row.animate([Number.isNaN(by) ? { opacity: 0 } : { transform: `translateY(${by}px)` }, {}], { duration: 250, easing: "ease-out" });
	}
}

async function start() {
	const token = takeToken();
	read();
	if (state.model && !token) return change({});
	draw();
	try {
		state.model = await ask("model");
	} catch (error) {
		state.failed = error.message;
		return draw();
	}
	state.sheet = matchMedia("(min-width: 60rem)").matches;
	onChange(() => {
		refresh();
		draw();
	});
	change({});
}

addEventListener("hashchange", start);
addEventListener("keydown", (event) => {
	if (event.key !== "/" || /^(input|select)$/i.test(event.target.tagName)) return;
	event.preventDefault();
	document.getElementById("query")?.focus();
});
start();
