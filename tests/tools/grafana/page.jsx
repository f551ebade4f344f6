// One dashboard as a page: the panels of window.PAGE, drawn by Grafana's component library.
//
// What Grafana's server and its panel plugins add is not here: a choice of variables, links,
// annotations, the list of alerts. The state timeline is such a plugin: its bars are drawn here.
// PAGE has the dashboard's panels with the series that graphite-web returned for each; report() says what was drawn.

import {
  FieldConfigOptionsRegistry,
  applyFieldOverrides,
  cacheFieldDisplayNames,
  createTheme,
  dateTime,
  getDisplayValueAlignmentFactors,
  getFieldDisplayValues,
  getValueFormat,
  identityOverrideProcessor,
  renderTextPanelMarkdown,
  standardTransformers,
  standardTransformersRegistry,
  toDataFrame,
  transformDataFrame,
} from '@grafana/data';
import {
  BarGauge,
  BigValue,
  GlobalStyles,
  PanelChrome,
  ThemeContext,
  TimeSeries,
  VizRepeater,
} from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';
import React from 'react';
import { createRoot } from 'react-dom/client';
import { firstValueFrom } from 'rxjs';

import { drawn } from './canvas.js';

const { title, from, to, width, panels } = window.PAGE;
const theme = createTheme({ colors: { mode: 'dark' } });
const CELL = { width: width / 24, height: 38, gap: 8 };
const replaceVariables = (text) => text;
const range = (from, to) => ({
  from: dateTime(from),
  to: dateTime(to),
  raw: { from: dateTime(from), to: dateTime(to) },
});

// The properties that a panel of Grafana's may have: standard ones, and those of its own editor.
const STANDARD = [
  'unit',
  'min',
  'max',
  'decimals',
  'displayName',
  'noValue',
  'thresholds',
  'mappings',
  'color',
  'links',
  'custom',
];
const CUSTOM = [
  'axisPlacement',
  'axisLabel',
  'drawStyle',
  'fillOpacity',
  'gradientMode',
  'lineInterpolation',
  'lineStyle',
  'lineWidth',
  'pointSize',
  'scaleDistribution',
  'showPoints',
  'spanNulls',
  'stacking',
  'thresholdsStyle',
  'align',
  'cellOptions',
  'inspect',
  'insertNulls',
  'width',
  'minWidth',
  'hideFrom',
];
const option = (path, isCustom) => ({
  id: isCustom ? `custom.${path}` : path,
  path,
  isCustom,
  name: path,
  process: identityOverrideProcessor,
  shouldApply: () => true,
});
const registry = new FieldConfigOptionsRegistry();
STANDARD.filter((path) => path !== 'custom').forEach((path) =>
  registry.register(option(path, false)),
);
CUSTOM.forEach((path) => registry.register(option(path, true)));

standardTransformersRegistry.setInit(() =>
  ['reduce', 'organize']
    .map((id) => Object.values(standardTransformers).find((transformer) => transformer.id === id))
    .map((transformer) => ({
      id: transformer.id,
      name: transformer.name,
      aliasIds: [],
      editor: () => null,
      transformation: () => Promise.resolve(transformer),
    })),
);

// The panel's series as Grafana's data source of Graphite makes them, with the panel's configuration applied.
async function data(panel) {
  let frames = panel.series.map(({ name, points }) =>
    toDataFrame({
      target: name,
      datapoints: points.map(([value, second]) => [value, second * 1000]),
    }),
  );
  if (panel.json.transformations?.length) {
    frames = await firstValueFrom(transformDataFrame(panel.json.transformations, frames));
  }
  const fieldConfig = panel.json.fieldConfig ?? { defaults: {}, overrides: [] };
  frames = applyFieldOverrides({
    data: frames,
    fieldConfig,
    fieldConfigRegistry: registry,
    replaceVariables,
    theme,
    timeZone: 'browser',
  });
  cacheFieldDisplayNames(frames);
  return frames;
}

const NoData = ({ panel }) => (
  <div className="no-data">{panel.json.fieldConfig.defaults.noValue ?? 'No data'}</div>
);

function Curves({ panel, frames, width, height }) {
  if (frames.length === 0) return <NoData panel={panel} />;
  const options = panel.json.options;
  return (
    <TimeSeries
      frames={frames}
      structureRev={1}
      width={width}
      height={height}
      timeRange={range(panel.from, panel.to)}
      timeZone="browser"
      legend={options.legend}
      options={options}
    />
  );
}

function values(panel, frames) {
  const fieldConfig = panel.json.fieldConfig;
  return getFieldDisplayValues({
    fieldConfig,
    reduceOptions: panel.json.options.reduceOptions,
    replaceVariables,
    theme,
    data: frames,
    sparkline: panel.json.options.graphMode === 'area',
    timeZone: 'browser',
  });
}

function Numbers({ panel, frames, width, height }) {
  const { colorMode, graphMode, justifyMode, textMode, orientation } = panel.json.options;
  const render = ({ value, width, height, count, orientation, alignmentFactors }) => (
    <BigValue
      value={value.display}
      count={count}
      alignmentFactors={alignmentFactors}
      sparkline={value.sparkline}
      colorMode={colorMode}
      graphMode={graphMode}
      justifyMode={justifyMode}
      textMode={textMode}
      width={width}
      height={height}
      theme={theme}
      parentOrientation={orientation}
    />
  );
  return (
    <VizRepeater
      getValues={() => values(panel, frames)}
      getAlignmentFactors={getDisplayValueAlignmentFactors}
      renderValue={render}
      width={width}
      height={height}
      source={frames}
      itemSpacing={3}
      renderCounter={1}
      autoGrid
      orientation={orientation}
    />
  );
}

function Bars({ panel, frames, width, height }) {
  const { displayMode, orientation, showUnfilled, valueMode } = panel.json.options;
  const all = values(panel, frames);
  const names = {
    text: all.reduce(
      (longest, one) =>
        (one.display.title ?? '').length > longest.length ? one.display.title : longest,
      '',
    ),
    numeric: 0,
  };
  const render = ({ value, width, height, alignmentFactors }) => (
    <BarGauge
      value={value.display}
      width={width}
      height={height}
      orientation={orientation}
      field={value.field}
      theme={theme}
      display={value.view?.getFieldDisplayProcessor(value.colIndex ?? 0)}
      displayMode={displayMode}
      showUnfilled={showUnfilled}
      valueDisplayMode={valueMode}
      alignmentFactors={alignmentFactors}
      itemSpacing={10}
      lcdCellWidth={12}
    />
  );
  return (
    <VizRepeater
      getValues={() => all}
      getAlignmentFactors={() => ({ ...names, title: names.text })}
      renderValue={render}
      width={width}
      height={height}
      source={frames}
      itemSpacing={10}
      renderCounter={1}
      orientation={orientation}
      minVizHeight={16}
      minVizWidth={8}
    />
  );
}

function Rows({ panel, frames, width, height }) {
  if (frames.length === 0 || frames[0].length === 0) return <NoData panel={panel} />;
  const { sortBy, showHeader, cellHeight } = panel.json.options;
  return (
    <TableNG
      data={frames[0]}
      width={width}
      height={height}
      noHeader={!showHeader}
      showTypeIcons={false}
      resizable={false}
      initialSortBy={sortBy}
      cellHeight={cellHeight}
      fieldConfig={panel.json.fieldConfig}
      structureRev={1}
      timeRange={range(panel.from, panel.to)}
      timeZone="browser"
    />
  );
}

// One bar for each state of a series: its values that follow one another and are equal.
function States({ panel, frames, width, height }) {
  if (frames.length === 0) return <NoData panel={panel} />;
  const fields = frames.map((frame) => ({ time: frame.fields[0].values, field: frame.fields[1] }));
  const axis = 20;
  const row = (height - axis) / fields.length;
  const left = 20 + 7 * Math.max(...panel.series.map(({ name }) => name.length));
  const names = Math.min(Math.max(left, 120), width / 4);
  const x = (time) =>
    names + ((width - names) * (time - panel.from)) / (panel.to - panel.from);
  const bars = fields.flatMap(({ time, field }, line) => {
    const step = time[1] - time[0];
    const found = [];
    for (const [index, value] of field.values.entries()) {
      const last = found.at(-1);
      if (value === null) continue;
      if (last?.value === value && time[index] - last.until <= 90_000)
        last.until = time[index] + step;
      else found.push({ value, from: time[index], until: time[index] + step });
    }
    return found.map(({ value, from, until }) => ({
      line,
      from: Math.max(x(from), names),
      until: Math.min(x(until), width),
      shown: field.display(value),
    }));
  });
  const hour = 3_600_000;
  const span = panel.to - panel.from;
  const every = [hour / 60, hour / 12, hour / 4, hour / 2, hour].find((one) => span / one < 14) ?? hour;
  const first = Math.ceil(panel.from / every);
  const ticks = Array.from({ length: Math.floor(panel.to / every) - first + 1 }, (_, i) => (first + i) * every);
  const box = (left, top, width, height, more) => ({ position: 'absolute', left, top, width, height, ...more });
  const label = { lineHeight: `${row}px`, textAlign: 'right', whiteSpace: 'nowrap', overflow: 'hidden' };
  return (
    <div className="states" style={{ position: 'relative', width, height, fontSize: 12 }}>
      {frames.map((frame, line) => (
        <div key={line} style={box(0, line * row, names - 8, row, label)}>
          {panel.series[line].name}
        </div>
      ))}
      {bars.map(({ line, from, until, shown }, index) => (
        <div
          key={index}
          style={box(from, line * row + row * 0.05, Math.max(until - from, 1), row * 0.9, {
            background: shown.color,
            color: '#111217',
            lineHeight: `${row * 0.9}px`,
            overflow: 'hidden',
            whiteSpace: 'nowrap',
            paddingLeft: until - from > 40 ? 6 : 0,
            boxSizing: 'border-box',
          })}
        >
          {until - from > 40 ? shown.text : ''}
        </div>
      ))}
      {ticks.map((time) => (
        <div key={time} style={box(x(time) - 20, height - axis + 4, 40, axis, { textAlign: 'center' })}>
          {new Date(time).toISOString().slice(11, 16)}
        </div>
      ))}
    </div>
  );
}

function Words({ panel }) {
  if (panel.json.type === 'alertlist')
    return <div className="words">Grafana lists here the alerts that fire.</div>;
  return (
    <div
      className="markdown-html"
      dangerouslySetInnerHTML={{ __html: renderTextPanelMarkdown(panel.json.options.content) }}
    />
  );
}

const KINDS = {
  timeseries: Curves,
  stat: Numbers,
  bargauge: Bars,
  table: Rows,
  'state-timeline': States,
};

function Place({ panel, children }) {
  const { x, y, w, h } = panel.json.gridPos;
  const style = {
    position: 'absolute',
    left: x * CELL.width,
    top: 40 + y * CELL.height,
    width: w * CELL.width - CELL.gap,
    height: h * CELL.height - CELL.gap,
  };
  return (
    <div style={style} data-panel={panel.json.id}>
      {children(style)}
    </div>
  );
}

function Panel({ panel, frames }) {
  if (panel.json.type === 'row')
    return (
      <Place panel={panel}>
        {() => <div className="row">{(panel.json.collapsed ? '▸ ' : '▾ ') + panel.json.title}</div>}
      </Place>
    );
  const Kind = KINDS[panel.json.type] ?? Words;
  return (
    <Place panel={panel}>
      {({ width, height }) => (
        <PanelChrome
          title={panel.json.title}
          width={width}
          height={height}
          displayMode={panel.json.transparent ? 'transparent' : 'default'}
        >
          {(width, height) => <Kind panel={panel} frames={frames} width={width} height={height} />}
        </PanelChrome>
      )}
    </Place>
  );
}

// A panel that throws must not take the others with it.
class Guard extends React.Component {
  state = {};
  static getDerivedStateFromError(error) {
    return { error };
  }
  render() {
    return this.state.error ? (
      <div className="failed">{`failed: ${this.state.error.message}`}</div>
    ) : (
      this.props.children
    );
  }
}

function Page({ all }) {
  const bottom = Math.max(
    ...panels.map(
      ({
        json: {
          gridPos: { y, h },
        },
      }) => y + h,
    ),
  );
  return (
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <div id="page" style={{ position: 'relative', width, height: 48 + bottom * CELL.height }}>
        <h1>{title}</h1>
        {all.map(({ panel, frames }) => (
          <Guard key={panel.json.id ?? panel.json.title}>
            <Panel panel={panel} frames={frames} />
          </Guard>
        ))}
      </div>
    </ThemeContext.Provider>
  );
}

// What a unit may write before and after a number.
function suffixes({ defaults, overrides }) {
  const own = overrides
    .flatMap(({ properties }) => properties)
    .filter(({ id }) => id === 'unit')
    .map(({ value }) => value);
  const powers = Array.from({ length: 30 }, (_, power) => 10 ** (power - 9));
  const all = [defaults.unit, ...own]
    .filter(Boolean)
    .flatMap((unit) => powers.map((value) => getValueFormat(unit)(value)));
  return [
    ...new Set([
      '',
      ...all.flatMap(({ prefix, suffix }) => [(prefix ?? '').trim(), (suffix ?? '').trim()]),
    ]),
  ];
}

// What each panel shows: its texts, what was drawn on its canvases, and the series that it got.
function report(all) {
  return all
    .filter(({ panel }) => KINDS[panel.json.type])
    .map(({ panel: { json, series, config } }) => {
      const place = document.querySelector(`[data-panel="${json.id}"]`);
      const grid = place?.querySelector('[role="grid"]');
      const lines = [...(grid?.querySelectorAll('[role="row"]') ?? [])];
      return {
        title: json.title,
        kind: json.type,
        calc: json.options.reduceOptions?.calcs[0] ?? '',
        text: place?.innerText ?? '',
        cells: lines.map((line) =>
          [...line.querySelectorAll('[role="gridcell"], [role="columnheader"]')].map((cell) =>
            cell.innerText.trim(),
          ),
        ),
        is_cut: grid ? grid.scrollWidth > grid.clientWidth : false,
        canvases: [...(place?.querySelectorAll('canvas') ?? [])].map(drawn),
        suffixes: suffixes(config),
        series: series.map(({ name, points }) => ({
          name,
          points: points.filter(([value]) => value !== null).length,
          last: points.at(-1)?.[0] ?? null,
        })),
      };
    });
}

async function main() {
  const all = await Promise.all(
    panels.map(async (panel) => ({
      panel,
      frames: KINDS[panel.json.type] ? await data(panel) : [],
    })),
  );
  createRoot(document.getElementById('root')).render(<Page all={all} />);
  // Grafana's panels measure texts and draw in several steps.
  setTimeout(() => {
    const element = document.createElement('script');
    element.type = 'application/json';
    element.id = 'report';
    element.textContent = JSON.stringify(report(all)).replaceAll('<', '\\u003c');
    document.body.append(element);
  }, 4000);
}

main();
