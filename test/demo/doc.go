// SPDX-License-Identifier: Apache-2.0

// Package demo tests what `make demo` says on machines on which it cannot run.
package demo
