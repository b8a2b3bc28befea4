// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"flag"
	"slices"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/provider"
)

type labelled struct {
	Zone  string `flag:"zone" env:"T_ZONE" label:"new/zone,old/zone" usage:"zone"`
	Cores int64  `flag:"cores" default:"2" min:"1" max:"8" label:"cores" usage:"cores"`
	Name  string `flag:"name" usage:"no label says it"`
}

// TestLabelsStandBetweenVariablesAndDefaults, and nobody asks for those of
// settings that are set.
func TestLabelsStandBetweenVariablesAndDefaults(t *testing.T) {
	labels := map[string]string{"old/zone": "old", "new/zone": "new", "cores": "4", "name": "no"}
	for name, c := range map[string]struct {
		args   []string
		env    string
		labels map[string]string
		asked  []string
		want   labelled
		wrong  string
	}{
		"by label":       {nil, "", labels, []string{"new/zone", "old/zone", "cores"}, labelled{"new", 4, ""}, ""},
		"second label":   {nil, "", map[string]string{"new/zone": "", "old/zone": "old"}, []string{"new/zone", "old/zone", "cores"}, labelled{"old", 2, ""}, ""},
		"by variable":    {nil, "env", labels, []string{"cores"}, labelled{"env", 4, ""}, ""},
		"by flag":        {[]string{"-cores=1", "-zone=flag"}, "env", labels, nil, labelled{"flag", 1, ""}, ""},
		"a wrong label":  {[]string{"-zone=z"}, "", map[string]string{"cores": "9"}, []string{"cores"}, labelled{}, "-cores: the node's label cores: 9: want from 1 to 8"},
		"without labels": {nil, "", nil, []string{"new/zone", "old/zone", "cores"}, labelled{"", 2, ""}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := New("t", func(labelled) (provider.Provider, error) { return nil, nil })
			flags := flag.NewFlagSet("t", flag.ContinueOnError)
			m.ParseCmd(flags)
			if err := flags.Parse(c.args); err != nil {
				t.Fatal(err)
			}
			m.LoadFrom(func(string) string { return c.env })
			var asked []string
			if err := FromNode(m, func(wanted []string) (map[string]string, error) { asked = wanted; return c.labels, nil }); err != nil {
				t.Fatal(err)
			}
			got, err := m.Config()
			if !slices.Equal(asked, c.asked) || got != c.want || (err != nil) != (c.wrong != "") {
				t.Errorf("asked for %v, %+v, %v", asked, got, err)
			}
			if err != nil && (!errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), c.wrong)) {
				t.Errorf("%v, want %s", err, c.wrong)
			}
		})
	}
}
