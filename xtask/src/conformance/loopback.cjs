// The suite's server listens on every address of the machine; this keeps it on one that only this machine reaches.
const { Server } = require('node:net')
const listen = Server.prototype.listen
Server.prototype.listen = function (port, ...rest) {
  return listen.call(this, { port: Number(port), host: '127.0.0.1' }, ...rest)
}
