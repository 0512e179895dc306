import { defineConfig } from "vite";

// `npm run dev` serves the source and hands every API path to a running server.
const server = "http://127.0.0.1:55000";
const api = ["/agents", "/changes", "/coverage", "/security", "/syscheck"];

export default defineConfig({
  build: {
    target: "es2022",
    cssTarget: ["chrome123", "firefox120", "safari17.5"],
    // File names without a digest: the built files are committed, and a rebuild of the same source
    // must change nothing. The server sends an entity tag, so a browser never keeps an old one.
    rollupOptions: {
      output: {
        entryFileNames: "assets/holdfast.js",
        chunkFileNames: "assets/[name].js",
        assetFileNames: "assets/holdfast[extname]",
      },
    },
    modulePreload: false,
    assetsInlineLimit: 0,
    reportCompressedSize: true,
  },
  server: { proxy: Object.fromEntries(api.map((path) => [path, server])) },
});
