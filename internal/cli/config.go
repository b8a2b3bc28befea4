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

// adaptorArg is the only one that may hold a secret.
const adaptorArg = "adaptor-arg"

// origin is the annotation of a flag that says where its value is from, if it is from the environment or the file.
const origin = "outrigger_origin"

// fromEnvironment makes a variable the default of a flag.
func fromEnvironment(flags *pflag.FlagSet, name, env string) {
	f := flags.Lookup(name)
	f.Usage += " (env " + env + ")"
	if value := os.Getenv(env); value != "" {
		f.DefValue = value
		f.Value.Set(value)
		flags.SetAnnotation(name, origin, []string{"environment, " + env})
	}
}

// readConfig returns what the configuration file has, by keys. Of them only an argument of the adaptor, which may be a
// setting of a provider, can hold a secret, and then others must not read the file.
func readConfig() (path string, nodes map[string]yaml.Node, err error) {
	path = os.Getenv("OUTRIGGER_CONFIG")
	named := path != ""
	if dir, err := os.UserConfigDir(); err == nil && !named {
		path = filepath.Join(dir, "outrigger", "config.yaml")
	}
	data, err := os.ReadFile(path)
	if !named && errors.Is(err, fs.ErrNotExist) {
		return "", nil, nil
	}
	if err == nil {
		err = yaml.Unmarshal(data, &nodes)
	}
	if err != nil {
		return "", nil, fmt.Errorf("configuration file %s: %w", path, err)
	}
	if node, ok := nodes[adaptorArg]; ok {
		if info, err := os.Stat(path); err != nil || info.Mode()&0o044 != 0 {
			return "", nil, fmt.Errorf("%s:%d: adaptor-arg may hold a secret, and others can read the file: chmod 600 %s", path, node.Line, path)
		}
	}
	return path, nodes, nil
}

// configure gives flags that are neither on the command line nor in the environment the values of the configuration file.
func configure(cmd *cobra.Command) error {
	if cmd.Hidden { // what outrigger starts itself is told everything
		return nil
	}
	path, nodes, err := readConfig()
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(nodes)) {
		node := nodes[key]
		place, values := fmt.Sprintf("%s:%d", path, node.Line), []string{node.Value}
		switch {
		case !slices.Contains(configKeys, key):
			return fmt.Errorf("%s: unknown key %q; there are %s", place, key, strings.Join(configKeys, ", "))
		case node.Tag == "!!null", node.Kind != yaml.ScalarNode && node.Decode(&values) != nil:
			return fmt.Errorf("%s: %s: want a value, or a list of values", place, key)
		}
		f := cmd.Flags().Lookup(key)
		ofManifest := cmd.Name() == "play" && (key == "cpus" || key == "memory")
		if f == nil || f.Changed || f.Annotations[origin] != nil || ofManifest {
			continue
		}
		if err := setFlag(f, values); err != nil {
			return fmt.Errorf("%s: %s: %w", place, key, err)
		}
		cmd.Flags().SetAnnotation(key, origin, []string{place})
	}
	return nil
}

func setFlag(f *pflag.Flag, values []string) error {
	if list, many := f.Value.(pflag.SliceValue); many {
		return list.Replace(values)
	}
	if len(values) != 1 {
		return errors.New("want one value")
	}
	if err := f.Value.Set(values[0]); err != nil {
		return fmt.Errorf("%q: %w", values[0], err)
	}
	return nil
}

// blame says where flags are set that an error names and that are not on the command line.
func blame(cmd *cobra.Command, text string) string {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if from := f.Annotations[origin]; from != nil && (strings.Contains(text, "--"+f.Name+" ") || strings.Contains(text, "--"+f.Name+":")) {
			text += fmt.Sprintf("\n--%s is set in %s", f.Name, from[0])
		}
	})
	return text
}

// namesOf returns arguments without their values.
func namesOf(args []string) string {
	var names []string
	for _, arg := range args {
		if name, _, _ := strings.Cut(arg, "="); strings.HasPrefix(arg, "-") {
			names = append(names, name)
		} else {
			names = append(names, "…")
		}
	}
	return strings.Join(names, " ")
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
			if err := configure(run); err != nil {
				return err
			}
			var rows []effective
			for _, key := range configKeys {
				rows = append(rows, a.effective(cmp.Or(cmd.Flags().Lookup(key), run.Flags().Lookup(key))))
			}
			if output == "json" {
				return program.WriteJSON(a.Stdout, rows)
			}
			return printRows(a.Stdout, `table {{.Key}}\t{{or .Value "-"}}\t{{.From}}`, effective{"KEY", "VALUE", "FROM"}, rows)
		},
	}
	commandline.Form(cmd, &output, "output", "form of the output", "table", "json")
	return cmd
}

func (a *App) effective(f *pflag.Flag) effective {
	value, from := f.Value.String(), f.Annotations[origin]
	if list, ok := f.Value.(pflag.SliceValue); ok {
		value = strings.Join(list.GetSlice(), " ")
		if f.Name == adaptorArg {
			value = namesOf(list.GetSlice())
		}
	}
	if f.Name == "image-cache" && value == "" {
		value, _ = a.imageCache()
	}
	switch {
	case f.Changed:
		from = []string{"flag"}
	case from == nil:
		from = []string{"default"}
	}
	return effective{f.Name, redact.Line(redact.Text(value)), from[0]}
}
