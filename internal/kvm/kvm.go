// SPDX-License-Identifier: Apache-2.0

// Package kvm says where guests cannot run on a machine's KVM although it has
// the device.
package kvm

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Impossible returns why no guest can run on this machine's KVM, where that is
// plain; empty where it may. The device proves nothing, and is not looked at:
// PVM runs only kernels built for it, others more slowly than emulation does.
// The root folder, which has /proc and /sys, is "/" except in tests.
func Impossible(root string) string {
	if _, err := os.Stat(filepath.Join(root, "sys/module/kvm_pvm")); err == nil {
		return "this machine's KVM is PVM (kvm_pvm), which runs no ordinary guest"
	}
	info, err := os.ReadFile(filepath.Join(root, "proc/cpuinfo"))
	if err != nil {
		return err.Error()
	}
	return byCPU(string(info))
}

// byCPU judges by the flags of x86; other architectures have none.
func byCPU(cpuinfo string) string {
	for line := range strings.Lines(cpuinfo) {
		name, flags, _ := strings.Cut(line, ":")
		if strings.TrimSpace(name) != "flags" {
			continue
		}
		words := strings.Fields(flags)
		if !slices.Contains(words, "svm") && !slices.Contains(words, "vmx") {
			return "the CPU has neither svm nor vmx"
		}
		return ""
	}
	return ""
}
