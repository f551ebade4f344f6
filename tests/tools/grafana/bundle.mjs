// node bundle.mjs OUT: page.jsx and Grafana's libraries as one file.

import { build } from 'esbuild';
import { fileURLToPath } from 'node:url';

const here = (file) => fileURLToPath(new URL(file, import.meta.url));
await build({
  entryPoints: [here('page.jsx')],
  bundle: true,
  format: 'iife',
  outfile: process.argv[2],
  define: { 'process.env.NODE_ENV': '"production"', global: 'globalThis' },
  loader: { '.svg': 'dataurl', '.woff2': 'dataurl', '.png': 'dataurl', '.ttf': 'empty' },
  plugins: [
    {
      // Its default export is a named one of the CommonJS module, which only webpack takes for a default import.
      name: 'scrollbars',
      setup(build) {
        build.onResolve({ filter: /^react-custom-scrollbars-2$/ }, ({ kind, resolveDir }) =>
          kind === 'import-statement' ? { path: resolveDir, namespace: 'scrollbars' } : undefined,
        );
        build.onLoad({ filter: /.*/, namespace: 'scrollbars' }, ({ path }) => ({
          contents:
            "const all = require('react-custom-scrollbars-2');" +
            'export const Scrollbars = all.Scrollbars; export default all.Scrollbars;',
          resolveDir: path,
        }));
      },
    },
  ],
  minify: true,
  logLevel: 'error',
});
