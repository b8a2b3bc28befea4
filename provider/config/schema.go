// SPDX-License-Identifier: Apache-2.0

// Package config turns a provider's configuration struct into everything that
// surrounds it: a schema, flags, environment variables, validation, Helm
// values and documentation.
//
// An author writes a struct with tags and one function:
//
//	type Config struct {
//		Endpoint string        `flag:"mycloud-endpoint" env:"MYCLOUD_ENDPOINT" default:"https://api.mycloud.example" usage:"URL of the API"`
//		Token    config.Secret `env:"MYCLOUD_TOKEN" required:"true" usage:"API token"`
//		Memory   int64         `flag:"mycloud-memory" env:"MYCLOUD_MEMORY" default:"2048" unit:"MiB" min:"256" usage:"memory of a pod that asks for none"`
//	}
//
//	func init() { provider.AddCloudProvider("mycloud", config.New("mycloud", Open)) }
//
//	func Open(c Config) (provider.Provider, error) { ... }
//
// Fields may be string, bool, int, int64, [time.Duration], []string (with
// commas), map[string]string (k=v,k=v), [Secret], and whatever implements
// [encoding.TextUnmarshaler]. A flag wins over its variable, which wins over
// the default; an empty variable counts as unset. A value that does not parse
// is an error, never the default. With the tag label, a list of labels of nodes,
// a label of the node on which the program runs stands between variable and
// default, see [Labelled].
package config

import "encoding/json"

// Type is the kind of a setting's value.
type Type string

// Types. The value of a setting is always handed over as text; the type says
// what the text must look like.
const (
	String   Type = "string"
	Bool     Type = "bool"     // true or false, 1 or 0
	Int      Type = "int"      // decimal
	Duration Type = "duration" // as time.ParseDuration
	List     Type = "list"     // a,b,c
	Map      Type = "map"      // k=v,k=v
)

// Field is one setting.
type Field struct {
	// Name is the setting's key in [Values]: its flag, or its variable where
	// it has no flag.
	Name string `json:"name"`
	// Flag is without the dash. Flag or Env may be empty, not both.
	Flag string `json:"flag,omitempty"`
	Env  string `json:"env,omitempty"`
	Type Type   `json:"type"`
	// Unit of the value, such as MiB.
	Unit    string `json:"unit,omitempty"`
	Default string `json:"default,omitempty"`
	// Required settings must not be empty.
	Required bool `json:"required,omitempty"`
	// Secret values are in no log, help text or error.
	Secret bool `json:"secret,omitempty"`
	// Choices, if any, are the only values allowed.
	Choices []string `json:"choices,omitempty"`
	// Labels of the node that the setting has its value from when neither flag
	// nor variable is set; the first that the node has counts.
	Labels []string `json:"labels,omitempty"`
	// Min and Max bound an Int, both included.
	Min   *int64 `json:"min,omitempty"`
	Max   *int64 `json:"max,omitempty"`
	Usage string `json:"usage"`
}

// Schema is the configuration of one provider.
type Schema struct {
	Provider string  `json:"provider"`
	Fields   []Field `json:"fields"`
}

// Values are settings by [Field].Name. What is missing has its default.
type Values map[string]string

// Redacted stands for a secret.
const Redacted = "(secret)"

// Secret is text that shows itself to nobody: not to fmt, slog or JSON.
type Secret string

// Reveal returns the text, for the one place that needs it.
func (s Secret) Reveal() string { return string(s) }

// String implements fmt.Stringer.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return Redacted
}

// GoString implements fmt.GoStringer.
func (s Secret) GoString() string { return s.String() }

// MarshalText implements encoding.TextMarshaler, which slog and JSON use.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Secret) UnmarshalText(text []byte) error {
	*s = Secret(text)
	return nil
}

// MarshalIndent returns the schema as JSON.
func (s Schema) MarshalIndent() []byte {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(err) // texts, numbers and bools only
	}
	return append(data, '\n')
}
