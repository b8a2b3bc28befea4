// SPDX-License-Identifier: Apache-2.0

// Package builtin links providers into the programs that import it: those that build
// tags name, or the local ones.
package builtin
