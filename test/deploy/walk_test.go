// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/cloudsim"
)

// walkSite is the simulated cloud that a page is followed at.
type walkSite struct {
	// env are the variables with which programs find the simulated cloud: endpoints,
	// authorities. They are what a user does not set.
	env map[string]string
	// flags are such settings as have no variable.
	flags []string
	// user are the variables that the page says have to be set, such as credentials.
	user map[string]string
	// means is what values of the page are here: files of the cluster's pods, a region.
	means map[string]string
	// shell are functions for commands that cannot ask, since they are in pipes.
	shell string
	// tools are the command lines of the cloud and of others, by name.
	tools map[string][]answer
	// nodes is the cluster's list of nodes, as JSON.
	nodes string
	// image writes what `make podvm-image` makes, as small as the cloud takes it.
	image func(path string) error
	// calls are the permissions that calls have needed so far; nil where the cloud does
	// not tell.
	calls func() []string
	// left is what the provider has in the cloud.
	left func() []string
	// countsImages says that left has images too, and that they are removed in the cloud.
	countsImages bool
	// page is the page's file in docs, if it is not the provider's.
	page string
	// blind says that there is no cloud to ask: settings are checked, and pods noted.
	blind bool
	// stays is what the page leaves behind and says so.
	stays []string
}

// answer is one command of a cloud's command line: its first words, the flags that it
// must have (with a value: that one), and what it prints.
type answer struct {
	words string
	flags map[string]string
	says  func(flags map[string]string) (string, error)
	// makes and removes name what the command makes or removes; "$NAME" stands for a
	// flag's value.
	makes, removes string
}

// called are the calls so far.
func (s walkSite) called() []string {
	if s.calls == nil {
		return nil
	}
	return s.calls()
}

// booked are the resources in the books of a cloud.
func booked(world *cloudsim.World) (left []string) {
	for _, r := range world.Own() {
		left = append(left, r.String())
	}
	return append(left, world.Violations()...)
}

func prints(text string) func(map[string]string) (string, error) {
	return func(map[string]string) (string, error) { return text, nil }
}

// walk is somebody who follows a page's commands.
type walk struct {
	t        *testing.T
	provider string
	site     walkSite
	dir      string
	log      []string
	// objects are those that are installed; nil before and after.
	objects []*unstructured.Unstructured
	open    map[string]string // settings of the installed adaptor
	secret  map[string]string
	pods    map[string]*provider.Instance // by the manifest's file
	made    []string
	granted []string // permissions of the policies that the page has made
	// importing are calls that only an import has made, with the user's own credentials.
	importing []string
}

// walkSites start the simulated cloud of each page.
var walkSites = map[string]func(*testing.T, *walk) walkSite{
	"alibabacloud": alibabaSite,
	"aws":          awsSite,
	"azure":        azureSite,
	"gcp":          gcpSite,
	"ibmcloud":     ibmcloudSite,
	"openstack":    openstackSite,
}

// prologue makes the command lines of clouds and clusters functions that ask the test,
// by two pipes: the words and the environment, and the exit status and the output.
const prologue = `
ask() {
  local status reply
  { printf '%s\0' "$#" "$@"; env -0; printf '\0'; } >&3
  IFS= read -r -d '' status <&4 && IFS= read -r -d '' reply <&4
  printf '%s' "$reply"
  return "$status"
}
sleep() { :; }
`

// commandsOf returns the blocks of commands of a page, in order.
func commandsOf(t *testing.T, name string) []string {
	t.Helper()
	var all []string
	for _, match := range regexp.MustCompile("(?ms)^```bash\n(.*?)^```$").FindAllStringSubmatch(page(t, name), -1) {
		all = append(all, match[1])
	}
	if len(all) < 5 {
		t.Fatalf("%s has %d blocks of commands", name, len(all))
	}
	return all
}

// providerPage is the page of a provider, in docs.
func providerPage(name string) string { return "providers/" + name + ".md" }

func (w *walk) page() string { return cmp.Or(w.site.page, providerPage(w.provider)) }

// follow runs all commands of a provider's page, in a copy of deploy/, at a simulated
// cloud that start starts.
func follow(t *testing.T, name string, start func(*testing.T, *walk) walkSite) *walk {
	t.Helper()
	if _, err := exec.LookPath("jq"); err != nil {
		t.Skip("the pages' commands use jq, which is not on this machine: apt-get install jq")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "deploy"), os.DirFS(filepath.Join(root, "deploy"))); err != nil {
		t.Fatal(err)
	}
	w := &walk{t: t, provider: name, dir: dir, pods: map[string]*provider.Instance{}}
	w.site = start(t, w)
	w.run(strings.Join(commandsOf(t, w.page()), "\n"))
	return w
}

// run runs commands in bash and answers for the tools meanwhile.
func (w *walk) run(commands string) {
	w.t.Helper()
	script := prologue + w.site.shell
	for _, tool := range append(slices.Sorted(maps.Keys(w.site.tools)), "kubectl", "helm", "make", "outrigger") {
		script += fmt.Sprintf("%s() { ask %[1]s \"$@\"; }\n", tool)
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Minute)
	defer cancel()
	asked, askedIn, err1 := os.Pipe()
	repliesOut, replies, err2 := os.Pipe()
	if err := errors.Join(err1, err2); err != nil {
		w.t.Fatal(err)
	}
	shell := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script+commands)
	shell.Dir, shell.ExtraFiles = w.dir, []*os.File{askedIn, repliesOut}
	shell.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.dir}
	for name, value := range w.site.user {
		shell.Env = append(shell.Env, name+"="+value)
	}
	var said strings.Builder
	shell.Stdout, shell.Stderr = &said, &said
	if err := shell.Start(); err != nil {
		w.t.Fatal(err)
	}
	askedIn.Close()
	repliesOut.Close()
	w.serve(asked, replies)
	if err := shell.Wait(); err != nil {
		w.t.Fatalf("the page's commands: %v\n%s\nasked so far:\n%s", err, said.String(), strings.Join(w.log, "\n"))
	}
}

// serve answers requests until the shell has ended.
func (w *walk) serve(asked, replies *os.File) {
	defer asked.Close()
	defer replies.Close()
	in := bufio.NewReader(asked)
	for {
		args, env, err := request(in)
		if err != nil {
			return
		}
		w.log = append(w.log, strings.Join(args, " "))
		status := 0
		text, err := w.do(args, env)
		if err != nil {
			w.t.Errorf("%s: %v", strings.Join(args, " "), err)
			status = 1
		}
		fmt.Fprintf(replies, "%d\x00%s\x00", status, text)
	}
}

// request reads the words of a command and its environment.
func request(in *bufio.Reader) (args []string, env map[string]string, err error) {
	next := func() string {
		word, failed := in.ReadString(0)
		err = cmp.Or(err, failed)
		return strings.TrimSuffix(word, "\x00")
	}
	n, failed := strconv.Atoi(next())
	if failed != nil {
		return nil, nil, failed
	}
	for range n {
		args = append(args, next())
	}
	env = map[string]string{}
	for word := next(); word != "" && err == nil; word = next() {
		name, value, _ := strings.Cut(word, "=")
		env[name] = value
	}
	return args, env, err
}

// TestPagesFollowed: the commands of a provider's page lead from the image to a pod and
// back, at the simulated cloud: what they make with the cloud's own command lines is
// removed again, policies have what the provider calls, the settings are right, and in
// the end the cloud has nothing.
func TestPagesFollowed(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(walkSites)) {
		t.Run(name, func(t *testing.T) {
			w := follow(t, name, walkSites[name])
			asked := strings.Join(w.log, "\n")
			for _, want := range []string{
				"make podvm-image", "make image push", "kubectl get runtimeclass kata-remote", "kubectl apply -f nginx.yaml",
				"kubectl wait --for=condition=Ready", "kubectl delete -f nginx.yaml", "kubectl wait --for=delete peerpods",
			} {
				if !strings.Contains(asked, want) {
					t.Errorf("the page does not lead to %q", want)
				}
			}
			if w.objects != nil || len(w.pods) > 0 {
				t.Error("the page does not lead back: something is installed")
			}
			if !slices.Equal(w.made, w.site.stays) {
				t.Errorf("the page leaves %q, want %q", w.made, w.site.stays)
			}
			w.wantNothing()
			w.wantGranted()
		})
	}
}

// wantNothing waits until the cloud has nothing of the provider's.
func (w *walk) wantNothing() {
	w.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		left := w.site.left()
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			w.t.Errorf("the cloud has %q", left)
			return
		}
	}
}

// wantGranted compares the page's policies with what the provider has called.
func (w *walk) wantGranted() {
	w.t.Helper()
	if w.site.calls != nil && len(w.granted) == 0 {
		w.t.Error("the page makes no policy")
	}
	for _, call := range w.site.called() {
		if !slices.Contains(w.granted, call) && !slices.Contains(w.importing, call) {
			w.t.Errorf("%s was called, which no policy of the page allows", call)
		}
	}
}
