// SPDX-License-Identifier: Apache-2.0

package kvm

import "testing"

func TestByCPU(t *testing.T) {
	for cpuinfo, works := range map[string]bool{
		"processor: 0\nflags\t\t: fpu vmx sse\n": true,
		"flags\t: fpu svm\n":                     true,
		"flags\t: fpu avmx\n":                    false,
		"flags : fpu sse\n":                      false,
		"model name : vmx\nflags\t: fpu\n":       false,
		"features\t: esan3 zarch\n":              true, // no x86
	} {
		if why := byCPU(cpuinfo); (why == "") != works {
			t.Errorf("%q: %q", cpuinfo, why)
		}
	}
}
