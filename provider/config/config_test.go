// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/outrigger/outrigger/provider"
)

type settings struct {
	Endpoint string            `flag:"endpoint" env:"T_ENDPOINT" default:"https://a.example" usage:"URL of the API"`
	Token    Secret            `env:"T_TOKEN" required:"true" usage:"API token"`
	Memory   int64             `flag:"memory" env:"T_MEMORY" default:"2048" unit:"MiB" min:"256" max:"4096" usage:"memory"`
	Public   bool              `flag:"public" env:"T_PUBLIC" usage:"with a public address"`
	Wait     time.Duration     `flag:"wait" default:"90s" usage:"longest wait"`
	Groups   []string          `flag:"groups" env:"T_GROUPS" usage:"security groups"`
	Tags     map[string]string `flag:"tags" env:"T_TAGS" usage:"tags"`
	Kind     string            `flag:"kind" env:"T_KIND" default:"a" choices:"a,b" usage:"kind"`
	Net      netip.Prefix      `flag:"net" env:"T_NET" usage:"network"`
}

func manager() *Manager[settings] {
	return New("t", func(settings) (provider.Provider, error) { return nil, nil })
}

// load does what a program does.
func load(t *testing.T, env map[string]string, args ...string) (settings, error) {
	t.Helper()
	m := manager()
	flags := flag.NewFlagSet("t", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	m.ParseCmd(flags)
	if err := flags.Parse(args); err != nil {
		return settings{}, err
	}
	m.LoadFrom(func(name string) string { return env[name] })
	return m.Config()
}

func prefixes(a, b netip.Prefix) bool { return a == b }

var equal = cmp.Comparer(prefixes)

func TestFlagWinsOverVariableWinsOverDefault(t *testing.T) {
	got, err := load(t, map[string]string{
		"T_TOKEN": "s", "T_MEMORY": "300", "T_ENDPOINT": "https://env.example", "T_KIND": "",
		"T_GROUPS": "x, y,", "T_TAGS": "k=v=w,l=", "T_NET": "10.0.0.0/8",
	}, "-endpoint=https://flag.example", "-public", "-wait", "5m")
	if err != nil {
		t.Fatal(err)
	}
	want := settings{
		Endpoint: "https://flag.example", Token: "s", Memory: 300, Public: true, Wait: 5 * time.Minute,
		Groups: []string{"x", "y"}, Tags: map[string]string{"k": "v=w", "l": ""}, Kind: "a", Net: netip.MustParsePrefix("10.0.0.0/8"),
	}
	if diff := cmp.Diff(want, got, equal); diff != "" {
		t.Error(diff)
	}
}

func TestWrongVariablesAreAllNamed(t *testing.T) {
	env := map[string]string{
		"T_MEMORY": "2G", "T_PUBLIC": "maybe", "T_TAGS": "nokey", "T_KIND": "c", "T_GROUPS": "fine",
	}
	_, err := load(t, env)
	if !errors.Is(err, provider.ErrInvalidArgument) {
		t.Fatalf("%v, want invalid argument", err)
	}
	for _, want := range []string{"-memory (T_MEMORY)", "2G", "-public (T_PUBLIC)", "maybe", "-tags (T_TAGS)", "nokey", "-kind (T_KIND)", `"c"`, "T_TOKEN", "required"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not mention %q:\n%v", want, err)
		}
	}
	if _, err := load(t, map[string]string{"T_TOKEN": "s", "T_NET": "10.0.0"}); err == nil || !strings.Contains(err.Error(), "T_NET") {
		t.Errorf("a malformed network: %v", err)
	}
}

func TestWrongFlags(t *testing.T) {
	for _, arg := range []string{"-memory=many", "-memory=255", "-memory=4097", "-wait=5", "-kind=c", "-public=maybe", "-tags=a=1,a=2", "-unknown=1"} {
		if _, err := load(t, map[string]string{"T_TOKEN": "s"}, arg); err == nil {
			t.Errorf("%s was taken", arg)
		}
	}
}

// TestAWrongVariableIsMendedByAFlag: the flag wins, also over nonsense.
func TestAWrongVariableIsMendedByAFlag(t *testing.T) {
	if _, err := load(t, map[string]string{"T_TOKEN": "s", "T_MEMORY": "nonsense"}, "-memory=512"); err != nil {
		t.Error(err)
	}
}

func TestSecretsAreShownToNobody(t *testing.T) {
	const text = "hunter2"
	s := settings{Token: text}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("config", "c", s, "token", s.Token)
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	shown := log.String() + string(data) + fmt.Sprint(s) + fmt.Sprintf("%#v %+v %s %q", s, s, s.Token, s.Token)
	if strings.Contains(shown, text) {
		t.Errorf("the secret is in %s", shown)
	}
	if s.Token.Reveal() != text {
		t.Error("the secret is lost")
	}
	f := Field{Env: "PIN", Type: Int, Secret: true}
	if err := f.Check(text); err == nil || strings.Contains(err.Error(), text) {
		t.Errorf("a malformed secret: %v", err)
	}
}

func TestSetReplacesAllAndReportsWhatItDoesNotKnow(t *testing.T) {
	m := manager()
	m.Set(Values{"memory": "300", "T_TOKEN": "s"})
	if got, err := m.Config(); err != nil || got.Memory != 300 || got.Token != "s" {
		t.Errorf("%+v, %v", got, err)
	}
	m.Set(Values{"T_TOKEN": "s", "colour": "red", "kind": "z"})
	_, err := m.Config()
	if err == nil || !strings.Contains(err.Error(), "colour") || !strings.Contains(err.Error(), "-kind") {
		t.Errorf("unknown settings: %v", err)
	}
	m.Set(Values{"T_TOKEN": "s"})
	if got, err := m.Config(); err != nil || got.Memory != 2048 {
		t.Errorf("after Set: %+v, %v", got, err)
	}
}

func TestFreshSharesNothing(t *testing.T) {
	one := manager()
	two := one.Fresh()
	one.Set(Values{"T_TOKEN": "one"})
	two.Set(Values{"T_TOKEN": "two"})
	got, err := one.Config()
	other, err2 := two.(*Manager[settings]).Config()
	if err != nil || err2 != nil || got.Token != "one" || other.Token != "two" {
		t.Errorf("%v %v %v %v", got.Token.Reveal(), other.Token.Reveal(), err, err2)
	}
}

func TestWrongTags(t *testing.T) {
	for name, f := range map[string]func(){
		"no usage": func() {
			Defaults[struct {
				A string `flag:"a"`
			}]()
		},
		"bad default": func() {
			Defaults[struct {
				A int `flag:"a" default:"x" usage:"u"`
			}]()
		},
		"bad bound": func() {
			Defaults[struct {
				A int `flag:"a" min:"x" usage:"u"`
			}]()
		},
		"kind": func() {
			Defaults[struct {
				A chan int `flag:"a" usage:"u"`
			}]()
		},
		"twice": func() {
			Defaults[struct {
				A, B string `flag:"a" usage:"u"`
			}]()
		},
		"unexported": func() {
			Defaults[struct {
				a string `flag:"a" usage:"u"`
			}]()
		},
		"no struct": func() { Defaults[int]() },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}

func TestCheckAndWrong(t *testing.T) {
	good := Defaults[settings]()
	good.Token = "s"
	if err := Check(good); err != nil {
		t.Error(err)
	}
	bad := settings{Memory: 1, Kind: "c"}
	err := Check(bad)
	for _, want := range []string{"T_TOKEN", "-memory (T_MEMORY)", "-kind"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not mention %s", err, want)
		}
	}
	if err := Wrong[settings]("net", "it is %d", 7); !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), "-net (T_NET): it is 7") {
		t.Error(err)
	}
}

// TestTheSchemaSurvivesJSON: programs in other languages read it.
func TestTheSchemaSurvivesJSON(t *testing.T) {
	want := manager().Schema()
	var got Schema
	if err := json.Unmarshal(want.MarshalIndent(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestHelmValuesAreYAMLWithEverySetting(t *testing.T) {
	var text bytes.Buffer
	manager().Schema().WriteHelmValues(&text)
	uncommented := regexp.MustCompile(`(?m)^    # ([A-Z_]+: )`).ReplaceAllString(text.String(), "    $1")
	var values struct {
		Provider                         string
		ProviderConfigs, ProviderSecrets map[string]map[string]string
	}
	for _, doc := range []string{text.String(), uncommented} {
		if err := yaml.Unmarshal([]byte(strings.NewReplacer("providerConfigs", "providerconfigs", "providerSecrets", "providersecrets").Replace(doc)), &values); err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
	}
	configs, secrets := values.ProviderConfigs["t"], values.ProviderSecrets["t"]
	if configs["T_MEMORY"] != "2048" || len(configs) != 7 || len(secrets) != 1 {
		t.Errorf("configs %v, secrets %v of\n%s", configs, secrets, text.String())
	}
	if strings.Contains(text.String(), "# T_TOKEN") {
		t.Error("a required value is commented out")
	}
}

func TestHelpAndMarkdownNameEverySetting(t *testing.T) {
	var help, markdown bytes.Buffer
	manager().Schema().WriteHelp(&help)
	manager().Schema().WriteMarkdown(&markdown)
	for _, f := range manager().Schema().Fields {
		for _, text := range []string{help.String(), markdown.String()} {
			if !strings.Contains(text, f.Flag) || !strings.Contains(text, f.Env) || !strings.Contains(text, f.Usage) {
				t.Errorf("%s is not in\n%s", f.Title(), text)
			}
		}
	}
}

// TestPatternsAgreeWithCheck: what the JSON schema lets through a program
// takes, and the other way round.
func TestPatternsAgreeWithCheck(t *testing.T) {
	for kind, texts := range map[Type][]string{
		Int:      {"0", "-5", "12", "1.5", "a", "1 ", "+1"},
		Bool:     {"1", "0", "true", "TRUE", "False", "no", "off", "yes", "on", "2"},
		Duration: {"5m", "1h30m", "1.5s", "0", "-3s", "5", "m", "1d"},
	} {
		f := Field{Type: kind}
		pattern := regexp.MustCompile(f.pattern())
		for _, text := range texts {
			if text == "+1" {
				continue // ParseInt takes it; a chart need not
			}
			if match, taken := pattern.MatchString(text), f.Check(text) == nil; match != taken {
				t.Errorf("%s %q: pattern %v, check %v", kind, text, match, taken)
			}
		}
	}
	properties := manager().Schema().JSONSchema()
	if required := properties["required"].([]string); !slices.Equal(required, []string{"T_TOKEN"}) {
		t.Errorf("required: %v", required)
	}
}

// TestNothingIsOpenedWithAnError: authors write `return New(c)`, whose nil pointer
// would pass for a provider, and somebody would close it.
func TestNothingIsOpenedWithAnError(t *testing.T) {
	type cloud struct{ provider.Provider }
	m := New("sky", func(struct{}) (provider.Provider, error) { return (*cloud)(nil), provider.ErrInvalidArgument })
	if p, err := m.NewProvider(); p != nil || err == nil {
		t.Errorf("%v, %v", p, err)
	}
	if p, err := m.NewImporter(t.Context()); p != nil || err == nil {
		t.Errorf("%v, %v", p, err)
	}
}
