// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"testing"

	"github.com/outrigger/outrigger/internal/program"
)

func TestExitCodes(t *testing.T) {
	for what, c := range map[string]struct {
		args []string
		want int
	}{
		"unknown flag":            {[]string{"build", "--nosuch"}, 2},
		"unknown command":         {[]string{"frob"}, 2},
		"unknown format":          {[]string{"build", "--format", "vmdk"}, 2},
		"argument":                {[]string{"build", "extra"}, 2},
		"bad form":                {[]string{"build", "-o", "yaml"}, 2},
		"key without certificate": {[]string{"build", "--sign-key", "x"}, 1},
		"measure what":            {[]string{"measure"}, 2},
		"measure in which form":   {[]string{"measure", "x", "-o", "yaml"}, 2},
		"firmware of nobody":      {[]string{"measure", "x", "--snp-firmware", "main.go", "--snp-hypervisor", "azure"}, 2},
		"no processors":           {[]string{"measure", "x", "--snp-firmware", "main.go", "--snp-vcpus", "0"}, 2},
		"processors of nothing":   {[]string{"measure", "x", "--snp-vcpus", "2"}, 2},
		"no firmware":             {[]string{"measure", "x", "--snp-firmware", "main.go"}, 1},
		"measure nothing":         {[]string{"measure", "/nonexistent"}, 1},
		"unknown guest":           {[]string{"build", "--guest", "other"}, 2},
		"Kata's without programs": {[]string{"build", "--guest", "kata"}, 2},
		"no such folder":          {[]string{"build", "--output", "/proc/nosuch"}, 1},
	} {
		t.Run(what, func(t *testing.T) {
			root := rootCommand()
			root.SetArgs(c.args)
			root.SetOut(io.Discard)
			root.SetErr(io.Discard)
			err := root.Execute()
			if err == nil {
				t.Fatal("no error")
			}
			if got := program.Exit("podvm-image", io.Discard, err); got != c.want {
				t.Errorf("exit code %d, want %d: %v", got, c.want, err)
			}
		})
	}
}
