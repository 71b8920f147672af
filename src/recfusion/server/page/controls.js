// Sliders from the controls that the service declares, and filters from the columns of the items.
import { tags } from "./dom.js";
import { chipMaps, controlsOf, defaults, isStrong, nChanged, sliders, withColumn } from "./settings.js";
import { change, changeCurrent, state } from "./store.js";
import { slider } from "./parts.js";

const { b, button, details, div, fieldset, h2, input, label, legend, option, p, select, span, summary } = tags;
const percent = (share) => `${Math.round(100 * share)} %`;

// What a click on a chip can set: [id, words, map, end of its range]. Two controls of one kind are told apart by name.
function brushes() {
	const named = (words, { title, name }, all) => (all.length > 1 ? `${words} (${title ?? name})` : words);
	return [
		...controlsOf("weights").flatMap((control, _, all) => [["more of", control.max], ["less of", control.min]].filter(([, end]) => end)
			.map(([words, end]) => [`${words} ${control.name}`, named(words, control, all), control.name, end])),
		["only", "only", "only"], ["never", "none of", "never"],
		...controlsOf("shares").map((control, _, all) => [control.name, named("a share", control, all), control.name]),
	];
}
const currentBrush = () => brushes().find(([id]) => id === state.brush) ?? brushes()[0];

// How a chip shows its setting: [class, sign, words, map, weight].
function mark(column, value) {
	const { current } = state, at = (map) => current[map][column]?.[value];
	if (at("only")) return ["only", "✓", "only", "only"];
	if (at("never")) return ["never", "⊘", "none of", "never"];
	for (const { name } of controlsOf("shares")) if (at(name) !== undefined) return ["shares", percent(at(name)), `${percent(at(name))} of the list`, name];
	for (const control of controlsOf("weights")) {
		const weight = at(control.name), strong = isStrong(control, weight);
		if (weight > 0) return ["more", strong ? "++" : "+", strong ? "much more" : "more", control.name, weight];
		if (weight < 0) return ["less", strong ? "−−" : "−", strong ? "much less" : "less", control.name, weight];
	}
	return ["", "", ""];
}

// A click sets what the brush means, a second click on a weight doubles it, the last click clears it.
function paint(column, value) {
	const { current } = state, [, , map, end] = currentBrush(), [, sign, , old, weight] = mark(column, value), patch = {};
	for (const name of chipMaps()) patch[name] = withColumn(current[name], column, without(current[name][column], value));
	const set = (to) => (patch[map] = withColumn(patch[map], column, { ...patch[map][column], [value]: to }));
	if (end) {
		if (old !== map || weight * end < 0) set(end / 2);
		else if (sign.length === 1) set(end);
	} else if (old !== map && controlsOf("shares").some(({ name }) => name === map)) {
		patch[map] = withColumn({}, column, patch[map][column]); // shares of one column at a time
		const share = Math.min(0.3, remaining(patch[map][column]));
		if (share > 0) set(share);
	} else if (old !== map) set(true);
	changeCurrent(patch, true);
}
const without = (map, value) => Object.fromEntries(Object.entries(map ?? {}).filter(([other]) => other !== value));
const remaining = (shares) => 1 - Math.round(100 * Object.values(shares ?? {}).reduce((sum, share) => sum + share, 0)) / 100;

function setShare(map, column, value, wanted) {
	const others = without(state.current[map][column], value);
	changeCurrent({ [map]: { [column]: { ...others, [value]: Math.max(0.05, Math.min(wanted, remaining(others))) } } });
}

function categories({ name, values }) {
	const { at_most: most } = state.current, [brush] = currentBrush();
	return [
		div({ class: "brushes", role: "radiogroup", "aria-label": `A click on a ${name} means` }, brushes().map(([id, words]) =>
			label({ key: id }, input({ type: "radio", class: "hidden", name: `brush-${name}`, checked: brush === id, onchange: () => change({ brush: id }) }), span(null, words)))),
		div({ class: "chips" },
			values.map((value) => {
				const [kind, sign, words] = mark(name, value);
				return button({ key: value, class: `chip ${kind}`, "aria-pressed": String(kind !== ""), "aria-label": words ? `${value}: ${words}` : value, onclick: () => paint(name, value) },
					sign && span({ class: "sign" }, sign), value);
			})),
		controlsOf("shares").map(({ name: map }) => Object.entries(state.current[map][name] ?? {}).map(([value, share]) =>
			slider({ id: `${map}-${name}-${value}`, title: `${value}: ${percent(share)} of the list`, low: "none", high: "all", value: share, set: (wanted) => setShare(map, name, value, wanted) }))),
		label({ class: "most" }, "At most ", select({ value: most[name] ?? "", onchange: (event) => changeCurrent({ at_most: withColumn(most, name, Number(event.target.value) || undefined) }) },
			option({ value: "" }, "any number"), [1, 2, 3, 5, 8].map((n) => option({ key: n, value: n }, n))), " of each"),
	];
}

const field = (words, props) => label(null, `${words} `, input(props));

function numbers({ name, min, max }) {
	const ends = state.current.range[name] ?? [null, null];
	return ["from", "to"].map((words, end) => field(words, {
		type: "number", step: "any", value: ends[end] ?? "", placeholder: [min, max][end], "aria-label": `${name} ${words}`,
		oninput: ({ target }) => changeCurrent({ range: withColumn(state.current.range, name, ends.with(end, target.value === "" ? null : Number(target.value))) }),
	}));
}

const text = ({ name }) => field("with", {
	type: "text", value: state.current.contains[name] ?? "", placeholder: "text", "aria-label": `${name} with`, maxlength: 100,
	oninput: ({ target }) => changeCurrent({ contains: withColumn(state.current.contains, name, target.value) }),
});

const flag = ({ name }) => select({
	value: String(state.current.is[name] ?? ""), "aria-label": name,
	onchange: ({ target }) => changeCurrent({ is: withColumn(state.current.is, name, { true: true, false: false }[target.value]) }),
}, option({ value: "" }, "either"), option({ value: "true" }, "yes"), option({ value: "false" }, "no"));

const FILTERS = { categories, number: numbers, text, boolean: flag };

// A sheet that opens over the list leaves its first rows visible.
function toggle(open) {
	change({ sheet: open });
	const view = document.querySelector("main article"), sheet = document.querySelector(".controls");
	if (open && getComputedStyle(sheet).position === "fixed") (view.querySelector("ol") ?? view).scrollIntoView({ block: "start" });
}

// Beside the list; on a phone a sheet at the lower edge, so that the list stays visible while a slider moves.
export function controls() {
	const { costs } = state.model.models.find(({ name }) => name === state.current.model) ?? state.model.models[0];
	const n = nChanged(state.current), order = Object.keys(FILTERS);
	const columns = state.model.columns.filter(({ name }) => !name.includes("`")).sort((one, other) => order.indexOf(one.kind) - order.indexOf(other.kind));
	return details({ class: "controls", open: state.sheet, ontoggle: ({ target }) => target.open !== state.sheet && toggle(target.open) },
		summary(null, b(null, "Re-ranking and filters"), n > 0 && span({ class: "n" }, `${n} set`)),
		div({ class: "inner" },
			div({ class: "head" }, h2(null, "Re-ranking"), button({ class: "quiet", disabled: !n, onclick: () => changeCurrent({ ...defaults(), model: state.current.model }, true) }, "Reset all")),
			costs?.[sliders()[0]?.name] && p({ class: "note" }, "Curves show how accurate lists stay."),
			sliders().map((control) => slider({ ...control, id: control.name, costs: costs?.[control.name], value: state.current[control.name], set: (value) => changeCurrent({ [control.name]: value }) })),
			columns.length > 0 && h2({ class: "second" }, "Filters and preferences"),
			columns.map((column) => fieldset({ key: column.name, class: `column ${column.kind}` }, legend(null, column.name), FILTERS[column.kind](column)))));
}
