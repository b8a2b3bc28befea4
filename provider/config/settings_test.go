// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

type words []string

func (w *words) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		return errors.New("want a word")
	}
	*w = append(*w, string(text))
	return nil
}

type programSettings struct {
	Socket string            `group:"Daemon" flag:"socket" env:"P_SOCKET" default:"/run/s" usage:"where it listens"`
	Level  string            `flag:"level" default:"info" choices:"debug,info" usage:"what is logged"`
	V      string            `flag:"v" means:"level" usage:"the same as -level"`
	Devel  bool              `flag:"devel" means:"level=debug,wait=0s" usage:"for developers"`
	Port   int               `group:"Pods" env:"P_PORT" default:"80" min:"1" max:"65535" usage:"port"`
	Count  int               `flag:"count" default:"3" min:"1" usage:"how many"`
	Wait   time.Duration     `flag:"wait" env:"P_WAIT" default:"5m" min:"0" usage:"how long"`
	Every  time.Duration     `flag:"every" default:"1m" min:"1ns" usage:"how often"`
	Tags   map[string]string `flag:"tags" env:"P_TAGS" usage:"tags"`
	Names  []string          `flag:"names" env:"P_NAMES" usage:"names"`
	Words  words             `flag:"word" usage:"a word; may be repeated"`
	Token  Secret            `env:"P_TOKEN" usage:"token"`
	Node   string            `flag:"node" usage:"this node"`
}

// bound returns the settings of a program after its environment and flags.
func bound(env map[string]string, args ...string) (*programSettings, *Settings, error) {
	p := &programSettings{Node: "here"}
	s := Bind(p)
	s.LoadEnv(func(name string) string { return env[name] })
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	s.AddFlags(flags)
	return p, s, errors.Join(flags.Parse(args), s.Err())
}

func TestSettingsOfAProgram(t *testing.T) {
	p, _, err := bound(nil)
	if err != nil || p.Socket != "/run/s" || p.Level != "info" || p.Port != 80 || p.Wait != 5*time.Minute || p.Node != "here" {
		t.Errorf("defaults: %+v, %v", p, err)
	}
	env := map[string]string{"P_SOCKET": "/env", "P_WAIT": "1h", "P_TAGS": "a=env", "P_NAMES": "x,y", "P_PORT": ""}
	p, _, err = bound(env, "-socket=/flag", "--tags", "a=b", "-tags=c=d", "-names=", "-word=one", "-word", "two", "-node=")
	if err != nil || p.Socket != "/flag" || p.Wait != time.Hour || !maps.Equal(p.Tags, map[string]string{"a": "b", "c": "d"}) || len(p.Names) > 0 ||
		!slices.Equal(p.Words, []string{"one", "two"}) || p.Node != "" || p.Port != 80 {
		t.Errorf("%+v, %v", p, err)
	}
	for args, want := range map[string]string{"-v=debug": "debug 5m0s", "-devel": "debug 0s", "-devel=false": "info 5m0s", "-devel -v=info -wait=2s": "info 2s"} {
		if p, _, err := bound(nil, strings.Fields(args)...); err != nil || p.Level+" "+p.Wait.String() != want {
			t.Errorf("%s: %s %s, %v; want %s", args, p.Level, p.Wait, err, want)
		}
	}
}

// TestMistakesAreAllNamed: those of variables too that a flag replaces.
func TestMistakesAreAllNamed(t *testing.T) {
	env := map[string]string{"P_PORT": "many", "P_WAIT": "5", "P_TAGS": "a", "P_SOCKET": "fine"}
	_, _, err := bound(env, "-count=0", "-every=0s", "-wait=-1s", "-v=loud", "-word=", "-devel=maybe")
	for _, want := range []string{
		`variable P_PORT="many": want a whole number, from 1 to 65535`, `variable P_WAIT="5": want a duration with its unit`, `variable P_TAGS="a": want key=value`,
		"flag -count 0: want 1 or more", "flag -every 0s: want more than 0", "flag -wait -1s: want 0 or more", `flag -v "loud": want debug or info`,
		`flag -word "": want a word`, `flag -devel "maybe": want true or false`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nlacks %q", err, want)
		}
	}
	if _, _, err := bound(map[string]string{"P_PORT": "70000"}); err == nil || !strings.Contains(err.Error(), "P_PORT=70000: want from 1 to 65535") {
		t.Error(err)
	}
}

// TestTheEnvironmentAfterFlags is read by programs that have another source first.
func TestTheEnvironmentAfterFlags(t *testing.T) {
	p, s, err := bound(nil, "-wait=2s")
	s.LoadEnv(func(name string) string { return map[string]string{"P_WAIT": "nonsense", "P_PORT": "81"}[name] })
	if err := errors.Join(err, s.Err()); err != nil || p.Wait != 2*time.Second || p.Port != 81 {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestSettingsAreShown(t *testing.T) {
	_, s, err := bound(map[string]string{"P_TOKEN": "hunter2", "P_NAMES": "x, y"})
	if err != nil {
		t.Fatal(err)
	}
	s.Dash = "--"
	shown := map[string]string{}
	for f, text := range s.All() {
		shown[f.Name] = text
	}
	if shown["P_TOKEN"] != Redacted || shown["names"] != "x,y" || shown["wait"] != "5m0s" || shown["tags"] != "" || shown["socket"] != "/run/s" {
		t.Errorf("%v", shown)
	}
	var help, markdown bytes.Buffer
	s.WriteHelp(&help)
	s.WriteMarkdown(&markdown)
	for _, want := range []string{"\nDaemon:\n  --socket TEXT [P_SOCKET]\n      where it listens (default /run/s)\n", "\nPods:\n  [P_PORT]\n      port; from 1 to 65535 (default 80)\n", "(default here)"} {
		if !strings.Contains(help.String(), want) {
			t.Errorf("the help lacks %q:\n%s", want, &help)
		}
	}
	if !strings.Contains(markdown.String(), "## Pods\n\n| flag |") || !strings.Contains(markdown.String(), "| `--wait` | `P_WAIT` | `5m` | how long |") {
		t.Error(markdown.String())
	}
}

type shared struct {
	Name  string `flag:"inner-name" default:"in" usage:"hidden by the outer field of that name"`
	Level string `flag:"inner-level" default:"low" usage:"level"`
}

// TestHiddenFieldsAreSettings: Go hides a field of an embedded struct behind an outer one
// of that name.
func TestHiddenFieldsAreSettings(t *testing.T) {
	var p struct {
		shared
		Name string `flag:"name" default:"out" usage:"name"`
	}
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	Bind(&p).AddFlags(flags)
	if err := flags.Parse([]string{"-inner-name=a", "-name=b"}); err != nil || p.shared.Name != "a" || p.Name != "b" || p.Level != "low" {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestRepeatedPairs: the later of two pairs with one key wins, as with other flags.
func TestRepeatedPairs(t *testing.T) {
	p, _, err := bound(nil, "-tags=a=b,c=d", "-tags=a=e")
	if want := map[string]string{"a": "e", "c": "d"}; err != nil || !maps.Equal(p.Tags, want) {
		t.Errorf("%v, %v; want %v", p.Tags, err, want)
	}
}
