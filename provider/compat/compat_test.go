// SPDX-License-Identifier: Apache-2.0

package compat

import (
	"context"
	"errors"
	"flag"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/compat/util"
)

type settings struct {
	text    string
	number  int
	on      bool
	span    time.Duration
	tags    KeyValueFlag
	size    uint
	big     uint64
	percent float64
}

type manager struct{ got settings }

func (m *manager) ParseCmd(flags *flag.FlagSet) {
	r := NewFlagRegistrar(flags)
	m.got.tags = nil
	r.StringWithEnv(&m.got.text, "text", "def", "COMPAT_TEXT", "", Required())
	r.StringWithEnv(new(string), "key", "", "COMPAT_KEY", "", Secret())
	r.IntWithEnv(&m.got.number, "number", 3, "COMPAT_NUMBER", "")
	r.BoolWithEnv(&m.got.on, "on", true, "COMPAT_ON", "")
	r.DurationWithEnv(&m.got.span, "span", time.Minute, "COMPAT_SPAN", "")
	r.CustomTypeWithEnv(&m.got.tags, "tags", "a=1", "COMPAT_TAGS", "")
	r.UintWithEnv(&m.got.size, "size", 1, "", "")
	r.Uint64WithEnv(&m.got.big, "big", 2, "", "")
	r.Float64WithEnv(&m.got.percent, "percent", 0.5, "", "")
}
func (m *manager) LoadEnv()                       {}
func (m *manager) NewProvider() (Provider, error) { return nothing{}, nil }

type nothing struct{}

func (nothing) CreateInstance(context.Context, string, string, cloudinit.CloudConfigGenerator, InstanceTypeSpec) (*Instance, error) {
	return nil, nil
}
func (nothing) DeleteInstance(context.Context, string) error { return nil }
func (nothing) Teardown() error                              { return nil }
func (nothing) ConfigVerifier() error                        { return nil }

func parse(t *testing.T, env map[string]string, args ...string) (settings, error) {
	t.Helper()
	for name, value := range env {
		t.Setenv(name, value)
	}
	m := &manager{}
	AddCloudProvider("compat-test", m)
	cloud := Get("compat-test")
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	cloud.ParseCmd(flags)
	if err := flags.Parse(args); err != nil {
		return m.got, err
	}
	_, err := cloud.NewProvider()
	return m.got, err
}

func TestFlagVariableDefault(t *testing.T) {
	got, err := parse(t, map[string]string{"COMPAT_TEXT": "env", "COMPAT_NUMBER": "4", "COMPAT_ON": "FALSE", "COMPAT_TAGS": "b=2, c=3"}, "-number", "5")
	want := settings{"env", 5, false, time.Minute, KeyValueFlag{"b": "2", "c": "3"}, 1, 2, 0.5}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(settings{})); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
}

func TestWithoutAny(t *testing.T) {
	got, err := parse(t, nil)
	want := settings{"def", 3, true, time.Minute, KeyValueFlag{"a": "1"}, 1, 2, 0.5}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(settings{})); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
}

// TestMistakesAreRefused: a variable that cannot be read is not a default in
// silence.
func TestMistakesAreRefused(t *testing.T) {
	_, err := parse(t, map[string]string{"COMPAT_NUMBER": "four", "COMPAT_SPAN": "5", "COMPAT_ON": "perhaps", "COMPAT_TAGS": "x"})
	for _, want := range []string{"-number (COMPAT_NUMBER)", `"four"`, "COMPAT_SPAN", "COMPAT_ON", "COMPAT_TAGS", "KEY=VALUE"} {
		if !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	if _, err := parse(t, map[string]string{"COMPAT_NUMBER": "four"}, "-number", "4", "-span", "1m", "-on", "-tags", "a=b"); err != nil {
		t.Errorf("a flag in place of it: %v", err)
	}
	if _, err := parse(t, nil, "-text", ""); err == nil || !strings.Contains(err.Error(), "-text (COMPAT_TEXT): it is required") {
		t.Errorf("without what is required: %v", err)
	}
}

func TestTypesBySize(t *testing.T) {
	list := []InstanceTypeSpec{
		{InstanceType: "memory", VCPUs: 2, Memory: 64}, {InstanceType: "cpu", VCPUs: 16, Memory: 16},
		{InstanceType: "gpu", VCPUs: 4, Memory: 32, GPUs: 1}, {InstanceType: "both", VCPUs: 16, Memory: 64},
	}
	valid := []string{"memory", "cpu", "gpu", "both"}
	for want, spec := range map[string]InstanceTypeSpec{
		"def": {}, "cpu": {VCPUs: 8, Memory: 8}, "memory": {VCPUs: 1, Memory: 32}, "gpu": {GPUs: 1}, "both": {InstanceType: "both", GPUs: 9},
	} {
		if got, err := SelectInstanceTypeToUse(spec, list, valid, "def"); got != want || err != nil {
			t.Errorf("%+v: %s, %v, want %s", spec, got, err, want)
		}
	}
	for _, spec := range []InstanceTypeSpec{{VCPUs: 99, Memory: 1}, {GPUs: 2}, {InstanceType: "other"}} {
		if got, err := SelectInstanceTypeToUse(spec, list, valid, "def"); !errors.Is(err, provider.ErrInvalidArgument) {
			t.Errorf("%+v: %s, %v", spec, got, err)
		}
	}
	if sorted := SortInstanceTypesOnResources(list); sorted[0].InstanceType != "cpu" || sorted[3].InstanceType != "gpu" {
		t.Errorf("%+v", sorted)
	}
}

func TestUtil(t *testing.T) {
	type secret struct{ Name, Key string }
	s := &secret{"n", "k"}
	if got := util.RedactStruct(s, "Key", "None").(*secret); got.Name != "n" || got.Key != "**********" || s.Key != "k" {
		t.Errorf("%+v of %+v", got, s)
	}
	if got := util.GenerateInstanceName("a-pod", "0123456789", 18); got != "podvm-a-p-01234567" {
		t.Errorf("name %s", got)
	}
	if got := util.GenerateInstanceName("a-pod", "0123456789", 63); got != "podvm-a-pod-01234567" {
		t.Errorf("name %s", got)
	}
	if !util.Contains([]string{"a"}, "a") || util.Contains(nil, "a") {
		t.Error("Contains")
	}
	field := "set"
	t.Setenv("COMPAT_X", "env")
	if DefaultToEnv(&field, "COMPAT_X", "f"); field != "set" {
		t.Error(field)
	}
	field = ""
	if DefaultToEnv(&field, "COMPAT_X", "f"); field != "env" {
		t.Error(field)
	}
}
