// Search runs in a worker, and a page that was opened as a file may not start one: then a hidden frame does its work.
// Beyond that nothing is changed: pages that come from a server have workers.
(() => {
  if (location.protocol !== 'file:') return

  class IFrameWorker extends EventTarget {
    constructor(url) {
      super()
      this.waiting = []
      this.frame = document.createElement('iframe')
      this.frame.hidden = true
      this.frame.title = 'search'
      document.documentElement.appendChild(this.frame)
      const inside = this.frame.contentWindow
      // What the script calls in a worker: postMessage to the page, and importScripts for languages other than English.
      inside.postMessage = data => this.dispatchEvent(new MessageEvent('message', { data }))
      inside.importScripts = (...urls) => Promise.all(urls.map(url => this.load(url)))
      this.load(url).then(() => {
        const waiting = this.waiting
        this.waiting = undefined
        waiting.forEach(data => this.postMessage(data))
      })
    }

    load(url) {
      return new Promise((resolve, reject) => {
        const script = this.frame.contentDocument.createElement('script')
        script.src = new URL(url, location.href).href
        script.onload = resolve
        script.onerror = () => reject(new Error(`cannot load ${url}`))
        this.frame.contentDocument.body.appendChild(script)
      })
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data)
      else this.frame.contentWindow.dispatchEvent(new MessageEvent('message', { data }))
    }

    terminate() {
      this.frame.remove()
    }
  }

  window.IFrameWorker = IFrameWorker
  window.Worker = IFrameWorker
})()
