// The settings of a list: its model, the re-ranking controls that the service declares, and filters on item columns.
import { listed, number } from "./dom.js";

// Controls as /model declares them: name, kind, title, low, high, help, min, max and default. Kinds: "weight" is a
// number, "weights" a number for each value of a column, "shares" parts of the list that add up to at most 1.
let controls = [];
export const setControls = (declared) => (controls = declared);
export const controlsOf = (kind) => controls.filter((control) => control.kind === kind);
export const sliders = () => controlsOf("weight").filter(({ title }) => title);

const isObject = (value) => typeof value === "object" && value !== null;
const within = ({ min, max }) => (value) => typeof value === "number" && value >= min && value <= max;
// Filters by column of the item table, with a check of the values that a link may set.
const FILTERS = {
	only: isObject,
	never: isObject,
	range: (ends) => Array.isArray(ends) && ends.length === 2 && ends.every((end) => end === null || Number.isFinite(end)),
	contains: (text) => typeof text === "string",
	is: (flag) => typeof flag === "boolean",
	at_most: (most) => Number.isInteger(most) && most > 0,
};
const columnControls = () => [...controlsOf("weights"), ...controlsOf("shares")];
const columnChecks = () => ({
	...Object.fromEntries(columnControls().map((control) => [control.name, (map) => isObject(map) && Object.values(map).every(within(control))])),
	...FILTERS,
});
// The maps of column and value that a click on a chip can change.
export const chipMaps = () => [...columnControls().map(({ name }) => name), "only", "never"];

export const defaults = () => ({
	model: "",
	...Object.fromEntries(sliders().map((control) => [control.name, control.default])),
	...Object.fromEntries(Object.keys(columnChecks()).map((map) => [map, {}])),
});

// Only the settings that differ from the defaults.
export function changed(settings) {
	const start = defaults();
	return Object.fromEntries(Object.entries(settings).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(start[name])));
}
// Whether controls other than filters are changed, and settings without such changes.
export const noReranking = () => Object.fromEntries(Object.entries(defaults()).filter(([name]) => controls.some((control) => control.name === name)));
export const isReranked = (settings) => Object.keys(changed(settings)).some((name) => controls.some((control) => control.name === name));
export const noFilters = () => Object.fromEntries(Object.keys(FILTERS).map((map) => [map, {}]));
export const nChanged = (settings) => Object.keys(changed({ ...settings, model: "" })).length;

// A link may hold anything: a setting that fails its check keeps its default.
export function checkedSettings(given) {
	const settings = defaults();
	if (!isObject(given)) return settings;
	if (typeof given.model === "string") settings.model = given.model;
	for (const control of sliders()) if (within(control)(given[control.name])) settings[control.name] = given[control.name];
	for (const [map, check] of Object.entries(columnChecks())) {
		for (const [column, value] of Object.entries(given[map] ?? {})) if (check(value)) settings[map][column] = value;
	}
	return settings;
}

// A copy of a map with another value for one column, or without the column if the value is empty.
export function withColumn(map, column, value) {
	const { [column]: _, ...rest } = map;
	const empty = value === undefined || value === "" || (isObject(value) && !Object.values(value).some((part) => part !== null));
	return empty ? rest : { ...rest, [column]: value };
}

const quoted = (text) => `'${String(text).replaceAll("'", "''")}'`;
// A cell may name several values: an item has each of them.
const has = ({ name }, value) => `\`${name}\` has ${quoted(value)}`;

// The filters as the condition `where` of a request.
export function condition(settings, columns) {
	const parts = [];
	for (const column of columns) {
		const filter = (map) => settings[map][column.name], [least, most] = filter("range") ?? [null, null];
		const add = (text, wanted) => wanted && parts.push(`\`${column.name}\` ${text}`);
		add(`>= ${least}`, least !== null);
		add(`<= ${most}`, most !== null);
		add(`contains ${quoted(filter("contains"))}`, filter("contains"));
		add(`== ${filter("is")}`, filter("is") !== undefined);
		if (filter("only")) parts.push(`(${Object.keys(filter("only")).map((value) => has(column, value)).join(" or ")})`);
		for (const value of Object.keys(filter("never") ?? {})) parts.push(`not ${has(column, value)}`);
	}
	return parts.join(" and ");
}

// The body of a request for a list.
export function request(settings, { models, columns }, rest) {
	const different = changed(settings), where = condition(settings, columns);
	const reranking = Object.fromEntries(controls.filter(({ name }) => name in different).map(({ name }) => [name, different[name]]));
	return { ...rest, model: settings.model || models[0].name, reranking, at_most: settings.at_most, ...(where && { where }) };
}

// How far a value lies from the default (0) towards the end on its side (1), and the words for that end.
export function position({ min, max, default: start }, value) {
	const end = value > start ? max : min;
	return end === start ? 0 : (value - start) / (end - start);
}
export const endWords = ({ low, high, default: start }, value) => (value > start ? high : low);

const degree = (share) => (share < 0.34 ? "a little " : share > 0.67 ? "strongly " : "");
const entries = (map, words) => Object.values(map).flatMap((values) => Object.entries(values).map(([value, weight]) => words(value, weight))).filter(Boolean);
export const isStrong = ({ min, max }, weight) => Math.abs(weight) > 0.7 * (weight > 0 ? max : -min);

// The settings in words, "" if none is changed.
export function describe(settings) {
	const words = [], add = (parts, before, join = listed) => parts.length && words.push(before + join(parts));
	const moved = sliders().filter((control) => settings[control.name] !== control.default);
	add(moved.map((control) => `${degree(position(control, settings[control.name]))}towards ${endWords(control, settings[control.name])}`), "");
	for (const control of controlsOf("weights")) {
		for (const [text, sign, strong] of [["more ", 1, false], ["much more ", 1, true], ["less ", -1, false], ["much less ", -1, true]]) {
			add(entries(settings[control.name], (value, weight) => weight * sign > 0 && isStrong(control, weight) === strong && value), text);
		}
	}
	for (const { name } of controlsOf("shares")) add(entries(settings[name], (value, share) => `${number(100 * share)} % ${value}`), "about ");
	add(entries(settings.only, (value) => value), "only ", (parts) => parts.join(" or "));
	add(entries(settings.never, (value) => value), "no ", (parts) => parts.join(", no "));
	const each = (map, text) => Object.entries(settings[map]).forEach(([column, value]) => words.push(text(column, value)));
	each("range", (column, [least, most]) => column + (least === null ? "" : ` from ${least}`) + (most === null ? "" : ` up to ${most}`));
	each("contains", (column, text) => `${column} with “${text}”`);
	each("is", (column, flag) => (flag ? column : `not ${column}`));
	each("at_most", (column, most) => `at most ${most} per ${column}`);
	return words.join("; ");
}
