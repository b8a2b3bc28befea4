// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/outrigger/outrigger/internal/commandline"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/internal/redact"
)

// configKeys are the flags that the configuration file can set, by their names: those that say where and in what pods run,
// not what runs.
var configKeys = []string{
	"root", "image-cache", "socket", "provider", "adaptor-arg", "no-template", "cpus", "memory", "platform", "pull", "dns", "network",
	"boot-timeout", "pull-timeout", "stop-timeout", "log-limit", "shm-size", "timeline",
}

// ofManifest are keys that a manifest sets for `play`.
var ofManifest = []string{"cpus", "memory"}

// setting is a key of the configuration file.
type setting struct {
	key, place string // FILE:LINE
	values     []string
}

// variable is the annotation of a flag with the variable that is its default.
const variable = "outrigger_variable"

// fromEnvironment makes a variable the default of a flag.
func fromEnvironment(flags *pflag.FlagSet, name, env string) {
	f := flags.Lookup(name)
	f.Usage += " (env " + env + ")"
	f.Annotations = map[string][]string{variable: {env}}
	if value := os.Getenv(env); value != "" {
		f.DefValue = value
		f.Value.Set(value)
	}
}

// configPath returns the path of the configuration file, and whether the user has named it.
func configPath() (path string, named bool) {
	if path := os.Getenv("OUTRIGGER_CONFIG"); path != "" {
		return path, true
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", false
	}
	return filepath.Join(dir, "outrigger", "config.yaml"), false
}

// readConfig returns what the configuration file has.
func readConfig() ([]setting, error) {
	path, named := configPath()
	data, err := os.ReadFile(path)
	if path == "" || !named && errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var nodes map[string]yaml.Node
	if err == nil {
		err = yaml.Unmarshal(data, &nodes)
	}
	if err != nil {
		return nil, fmt.Errorf("configuration file %s: %w", path, err)
	}
	var all []setting
	for _, key := range slices.Sorted(maps.Keys(nodes)) {
		node := nodes[key]
		s := setting{key: key, place: fmt.Sprintf("%s:%d", path, node.Line), values: []string{node.Value}}
		switch {
		case !slices.Contains(configKeys, key):
			return nil, fmt.Errorf("%s: unknown key %q; there are %s", s.place, key, strings.Join(configKeys, ", "))
		case node.Tag == "!!null", node.Kind != yaml.ScalarNode && node.Decode(&s.values) != nil:
			return nil, fmt.Errorf("%s: %s: want a value, or a list of values", s.place, key)
		}
		all = append(all, s)
	}
	return all, checkMode(path, all)
}

// checkMode refuses a file of which others may learn a secret. Of all keys only an argument of the adaptor, which may be
// a setting of a provider, can hold one.
func checkMode(path string, settings []setting) error {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	at := slices.IndexFunc(settings, func(s setting) bool { return s.key == "adaptor-arg" })
	if at >= 0 && info.Mode()&0o044 != 0 {
		return fmt.Errorf("%s: adaptor-arg may hold a secret, and others can read the file: chmod 600 %s", settings[at].place, path)
	}
	return nil
}

// configure gives flags that are neither on the command line nor in the environment the values of the configuration file.
func (a *App) configure(cmd *cobra.Command) error {
	if cmd.Hidden { // what outrigger starts itself is told everything
		return nil
	}
	settings, err := readConfig()
	if err != nil {
		return err
	}
	for _, s := range settings {
		f := cmd.Flags().Lookup(s.key)
		if f == nil || f.Changed || environmentOf(f) != "" || cmd.Name() == "play" && slices.Contains(ofManifest, s.key) {
			continue
		}
		list, many := f.Value.(pflag.SliceValue)
		switch {
		case many:
			err = list.Replace(s.values)
		case len(s.values) != 1:
			err = errors.New("want one value")
		default:
			err = f.Value.Set(s.values[0])
		}
		if err != nil {
			return fmt.Errorf("%s: %s: %w", s.place, s.key, err)
		}
		a.configured = append(a.configured, s)
	}
	return nil
}

// environmentOf returns the variable that a flag has its value from, if it is set.
func environmentOf(f *pflag.Flag) string {
	for _, name := range f.Annotations[variable] {
		if os.Getenv(name) != "" {
			return name
		}
	}
	return ""
}

// blame says which flags that an error names are from the configuration file.
func (a *App) blame(text string) string {
	for _, s := range a.configured {
		if strings.Contains(text, "--"+s.key+" ") || strings.Contains(text, "--"+s.key+":") {
			text += fmt.Sprintf("\n--%s is set in %s", s.key, s.place)
		}
	}
	return text
}

// effective is one row of `config`.
type effective struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	From  string `json:"from"`
}

func (a *App) configCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "config", Short: "Show the settings of run, and where each comes from", Args: cobra.NoArgs,
		Long: `Show the settings that outrigger run has without flags, and where each comes from: a flag wins
over the environment, that over the configuration file, and that over the default.

The file is OUTRIGGER_CONFIG, else outrigger/config.yaml in XDG_CONFIG_HOME or ~/.config. Its keys
are names of flags; they count for all commands that have the flag, but play takes cpus and memory
from the manifest. A key that is not known is an error. Secrets do not belong there.`,
		Example: "  provider: qemu\n  memory: 1GiB\n  dns: [192.0.2.53]",
		RunE: func(cmd *cobra.Command, _ []string) error {
			run := a.runCommand()
			if err := a.configure(run); err != nil {
				return err
			}
			var rows []effective
			for _, key := range configKeys {
				rows = append(rows, a.effective(cmp.Or(cmd.Flags().Lookup(key), run.Flags().Lookup(key))))
			}
			if output == "json" {
				return program.WriteJSON(a.Stdout, rows)
			}
			w := tabwriter.NewWriter(a.Stdout, 0, 0, 3, ' ', 0)
			fmt.Fprintln(w, "KEY\tVALUE\tFROM")
			for _, r := range rows {
				fmt.Fprintf(w, "%s\t%s\t%s\n", r.Key, cmp.Or(r.Value, "-"), r.From)
			}
			return w.Flush()
		},
	}
	commandline.Form(cmd, &output, "output", "form of the output", "table", "json")
	return cmd
}

func (a *App) effective(f *pflag.Flag) effective {
	e := effective{Key: f.Name, Value: f.Value.String(), From: "default"}
	if list, ok := f.Value.(pflag.SliceValue); ok {
		e.Value = strings.Join(list.GetSlice(), " ")
	}
	if f.Name == "image-cache" && e.Value == "" {
		e.Value, _ = a.imageCache()
	}
	e.Value = redact.Line(redact.Text(e.Value))
	env := environmentOf(f)
	at := slices.IndexFunc(a.configured, func(s setting) bool { return s.key == f.Name })
	switch {
	case f.Changed:
		e.From = "flag"
	case env != "":
		e.From = "environment, " + env
	case at >= 0:
		e.From = a.configured[at].place
	}
	return e
}
