// Search from a folder. Browsers start no worker from file://, so the script of the search runs in
// an empty frame instead, behind the interface of a worker. On a server nothing is replaced.
// (The theme looks for "iframe-worker" among the polyfills and would otherwise ask a CDN for one.)
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      const inside = frame.contentWindow
      const load = source =>
        new Promise((resolve, reject) => {
          const script = inside.document.createElement("script")
          script.src = new URL(source, document.baseURI)
          script.onload = resolve
          script.onerror = () => reject(new Error(`cannot load ${source}`))
          inside.document.body.append(script)
        })
      inside.importScripts = (...sources) =>
        sources.reduce((done, source) => done.then(() => load(source)), Promise.resolve())
      inside.postMessage = data => {
        const event = new MessageEvent("message", { data })
        this.dispatchEvent(event)
        this.onmessage?.(event)
      }
      this.send = data => inside.dispatchEvent(new inside.MessageEvent("message", { data }))
      this.ready = load(url)
      this.frame = frame
    }
    postMessage(data) {
      this.ready = this.ready.then(() => this.send(data))
    }
    terminate() {
      this.frame.remove()
    }
  }
}
