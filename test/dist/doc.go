// SPDX-License-Identifier: Apache-2.0

// Package dist tests what is handed to users without a compiler: it makes it,
// installs it where nothing else is, and runs it there.
package dist
