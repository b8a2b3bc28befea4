// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
)

// flags returns the flags of the program in a container, by name without dashes. If a
// flag occurs twice the last one counts, as for the program.
func flags(c *corev1.Container) map[string]string {
	all := map[string]string{}
	for _, part := range append(slices.Clone(c.Command), c.Args...) {
		for _, word := range shellWords(part) {
			if name, is := strings.CutPrefix(word, "--"); is {
				name, value, given := strings.Cut(name, "=")
				if !given {
					value = "true"
				}
				all[name] = value
			}
		}
	}
	return all
}

// shellWords returns the words of a command without quotes, continuations and
// comments. It knows no other syntax: scripts of operands have none.
func shellWords(script string) []string {
	var words []string
	for line := range strings.Lines(script) {
		for _, word := range strings.Fields(line) {
			if strings.HasPrefix(word, "#") {
				break
			}
			if word = strings.Trim(word, `'"`); word != `\` {
				words = append(words, word)
			}
		}
	}
	return words
}

// wantFlags returns a check of the manager's flags, which are names and values: node
// managers have no such flags. The value NAMESPACE is that of the installation.
func wantFlags(wanted ...string) func(operand) []string {
	return func(o operand) (problems []string) {
		c := o.container(bundle.Manager)
		if c == nil {
			return nil
		}
		have := flags(c)
		for flag := range slices.Chunk(wanted, 2) {
			name, want := flag[0], flag[1]
			if want == "NAMESPACE" {
				want = o.Namespace
			}
			problems = append(problems, findingIf(have[name] != want, "container %s has --%s=%s, want %s", c.Name, name, have[name], want)...)
		}
		return problems
	}
}

// start looks at how each main container begins.
func start(o operand) (problems []string) {
	for i := range o.pod.Containers {
		c := &o.pod.Containers[i]
		if o.openshift() {
			problems = append(problems, startsByShell(c)...)
			continue
		}
		shell := len(c.Command) > 0 && slices.Contains([]string{"sh", "bash"}, c.Command[0][strings.LastIndex(c.Command[0], "/")+1:])
		problems = append(problems, findingIf(shell, "container %s starts %s", c.Name, strings.Join(c.Command[:min(1, len(c.Command))], " "))...)
	}
	return problems
}

func startsByShell(c *corev1.Container) []string {
	if len(c.Command) != 3 || c.Command[0] != "/bin/bash" || c.Command[1] != "-c" {
		return findingIf(true, "container %s: command is not [/bin/bash, -c, script]", c.Name)
	}
	problems := findingIf(len(c.Args) > 0, "container %s has args", c.Name)
	script := strings.Join(shellWords(c.Command[2]), " ")
	for _, part := range []string{"set -o allexport", "-f /etc/kubernetes/apiserver-url.env ", "source /etc/kubernetes/apiserver-url.env", "exec "} {
		problems = append(problems, findingIf(!strings.Contains(script, part), "container %s: the script lacks: %s", c.Name, strings.TrimSpace(part))...)
	}
	return problems
}
