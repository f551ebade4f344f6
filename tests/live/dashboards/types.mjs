// The dashboards' structure against Grafana's own types, release by release: node types.mjs DASHBOARDS WORK.
//
// Each part of a dashboard is written down as a TypeScript literal of the type that @grafana/schema gives it, where tsc
// knows no key too many and no word that an enumeration lacks. Units are looked up in @grafana/data.

import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';

const RELEASES = ['10.4', '11.6', '12.4', '13.2'];
// An alert list has none in @grafana/schema.
const TYPED = {
  timeseries: ['options', 'custom'],
  stat: ['options'],
  bargauge: ['options'],
  text: ['options'],
  table: ['options', 'custom'],
  statetimeline: ['options', 'custom'],
};
// Of the export, or looked at one by one.
const UNTYPED = ['__requires', 'panels'];

const [dashboards, work] = process.argv.slice(2).map((path) => resolve(path));

function npm(folder, ...args) {
  return execFileSync('npm', args, {
    cwd: folder,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
  });
}

// Installs a package, of which `file` is a part, in a folder of its own.
function install(name, wanted, file) {
  const folder = join(work, name);
  if (!existsSync(join(folder, 'node_modules', file))) {
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, 'package.json'), '{"private": true}\n');
    npm(folder, 'install', '--no-audit', '--no-fund', '--ignore-scripts', wanted);
  }
  return folder;
}

function units() {
  const folder = join(work, 'data');
  const file = join(folder, 'package/dist/esm/valueFormats/categories.mjs');
  if (!existsSync(file)) {
    mkdirSync(folder, { recursive: true });
    const packed = npm(folder, 'pack', '--silent', '@grafana/data@~13.2.0')
      .trim()
      .split('\n')
      .pop();
    execFileSync('tar', ['xzf', packed], { cwd: folder });
  }
  const ids = [...readFileSync(file, 'utf8').matchAll(/\bid: ("[^"]+")/g)].map(([, id]) =>
    JSON.parse(id.replace(/\\x(..)/g, '\\u00$1')),
  );
  if (ids.length < 200) throw new Error(`only ${ids.length} units found in @grafana/data`);
  return new Set(ids);
}

// A file of the schema's: their places have changed over the releases.
function types(folder, kind) {
  const root = join(folder, 'node_modules/@grafana/schema/dist');
  const all = readdirSync(root, { recursive: true }).filter(
    (path) => path.includes(`composable/${kind}/panelcfg/`) && path.endsWith('.gen.d.ts'),
  );
  if (all.length === 0) throw new Error(`no types for ${kind} in ${root}`);
  return './' + relative(folder, join(root, all[0])).replace(/\.d\.ts$/, '');
}

function source(folder, all) {
  const lines = ["import type { Dashboard, Panel, RowPanel } from '@grafana/schema';"];
  for (const kind of Object.keys(TYPED)) {
    lines.push(`import type * as ${kind} from '${types(folder, kind)}';`);
  }
  lines.push(
    '// JSON has words where the types have enumerations, and Grafana fills in what is not there.',
    'type Plain<T> = unknown extends T ? unknown',
    '  : T extends string ? `${T}`',
    '  : T extends number ? (`${T}` extends `${infer N extends number}` ? N : never)',
    '  : T extends boolean | null | undefined ? T',
    '  : T extends (infer U)[] ? Plain<U>[]',
    '  : T extends object ? { [K in keyof T]?: Plain<T[K]> } : T;',
  );
  let number = 0;
  const literal = (type, value, comment) => {
    number += 1;
    lines.push(
      `// ${comment}`,
      `export const v${number}: Plain<${type}> = ${JSON.stringify(value)};`,
    );
  };
  const panel = (name, value) => {
    const comment = `${name}: ${value.title}`;
    const { options, fieldConfig, ...rest } = value;
    literal(
      'Panel',
      fieldConfig
        ? {
            ...rest,
            fieldConfig: { ...fieldConfig, defaults: { ...fieldConfig.defaults, custom: {} } },
          }
        : rest,
      comment,
    );
    const kind = value.type.replace('-', '');
    const typed = TYPED[kind] ?? [];
    if (typed.includes('options')) {
      literal(`${kind}.Options`, options, `${comment}, options`);
    }
    if (typed.includes('custom')) {
      literal(`${kind}.FieldConfig`, fieldConfig.defaults.custom, `${comment}, custom`);
    }
  };
  for (const [name, dashboard] of all) {
    const rest = Object.fromEntries(
      Object.entries(dashboard).filter(([key]) => !UNTYPED.includes(key)),
    );
    // An annotation's target is its data source's business.
    const list = rest.annotations.list.map(({ target, ...annotation }) => annotation);
    literal('Dashboard', { ...rest, annotations: { list } }, name);
    for (const value of dashboard.panels) {
      if (value.type === 'row') {
        literal('RowPanel', { ...value, panels: [] }, `${name}: ${value.title}`);
        value.panels.forEach((inside) => panel(name, inside));
      } else {
        panel(name, value);
      }
    }
  }
  // tsc has to see these, or it sees nothing.
  for (const [type, bad] of [
    ['timeseries.FieldConfig', { lineWidht: 1 }],
    ['timeseries.FieldConfig', { drawStyle: 'lines' }],
    ['stat.Options', { graphMode: 'areas' }],
    ['Panel', { grid: { x: 0 } }],
    ['Panel', { fieldConfig: { defaults: { units: 's' }, overrides: [] } }],
    ['Dashboard', { refresh: '1m', timeZone: 'browser' }],
  ]) {
    number += 1;
    lines.push(
      '// @ts-expect-error',
      `export const v${number}: Plain<${type}> = ${JSON.stringify(bad)};`,
    );
  }
  return { text: lines.join('\n') + '\n', number };
}

const all = readdirSync(dashboards)
  .filter((file) => file.endsWith('.json'))
  .map((file) => [file, JSON.parse(readFileSync(join(dashboards, file), 'utf8'))]);
if (all.length === 0) throw new Error(`no dashboards in ${dashboards}`);

const tsc = join(
  install('typescript', 'typescript@~5.9.0', 'typescript/bin/tsc'),
  'node_modules/typescript/bin/tsc',
);
for (const release of RELEASES) {
  const folder = install(release, `@grafana/schema@~${release}.0`, '@grafana/schema/package.json');
  const { text, number } = source(folder, all);
  writeFileSync(join(folder, 'dashboards.ts'), text);
  const options = [
    '--noEmit',
    '--strict',
    '--skipLibCheck',
    '--target',
    'es2022',
    '--module',
    'esnext',
    '--moduleResolution',
    'bundler',
  ];
  try {
    execFileSync('node', [tsc, ...options, 'dashboards.ts'], { cwd: folder, encoding: 'utf8' });
  } catch (error) {
    console.error(`Grafana ${release}:\n${error.stdout}`);
    process.exit(1);
  }
  console.log(`Grafana ${release}: ${number} parts are of its types`);
}

const known = units();
const used = new Set(
  JSON.stringify(all)
    .match(/"(?:unit"|id":"unit","value"):"[^"]*"/g)
    .map((pair) => pair.split(':"').pop().slice(0, -1)),
);
// Grafana makes a unit of any words behind one of these.
const unknown = [...used].filter(
  (unit) => !known.has(unit) && !/^(prefix|suffix|time|si|count|currency|bool):/.test(unit),
);
if (unknown.length > 0) {
  console.error(`units that @grafana/data does not have: ${unknown.join(', ')}`);
  process.exit(1);
}
console.log(`${used.size} units, of ${known.size} that @grafana/data has: ${[...used].join(', ')}`);
