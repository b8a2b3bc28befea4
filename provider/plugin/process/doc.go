// SPDX-License-Identifier: Apache-2.0

// Package process keeps a provider plugin running: a program that serves the
// contract of package pluginpb on a unix socket.
//
// The plugin finds the path of its socket in the variable
// [SocketVariable]. It gets nothing else of the host: no variable but PATH,
// HOME and TMPDIR, no argument, no file but its own program. Its settings come over the
// socket. Its standard input is a pipe that reaches its end when the host is
// gone, and the kernel kills it then. What it writes to standard output and
// error becomes lines of the host's log.
//
// When it ends, or does not answer any more, its whole process group is killed
// and it is started again: the first time at once, then after 100 ms and
// doubling to 30 s, until it has run for a minute. Calls wait for it a little
// and then fail with provider.ErrUnavailable and the reason.
package process

// SocketVariable is the environment variable that holds the path of the socket
// on which the plugin must listen.
const SocketVariable = "OUTRIGGER_PLUGIN_SOCKET"
