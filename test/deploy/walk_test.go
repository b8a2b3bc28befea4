// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
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
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/config"
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

// do carries out one command.
func (w *walk) do(args []string, env map[string]string) (string, error) {
	switch args[0] {
	case "make":
		return w.make(args[1:], env)
	case "helm":
		return w.helm(args[1:])
	case "kubectl":
		return w.kubectl(args[1:])
	case "outrigger":
		return w.outrigger(args[1:], env)
	}
	return w.answer(args)
}

// clusterIssuer signs the service accounts' tokens of the cluster.
const clusterIssuer = "https://cluster.example"

// kubectl answers for the cluster in which the page installs.
func (w *walk) kubectl(args []string) (string, error) {
	line := strings.Join(args, " ")
	exists := func(name string) (string, error) {
		kind, name, _ := strings.Cut(name, "/")
		if !slices.ContainsFunc(w.objects, func(o *unstructured.Unstructured) bool {
			return strings.EqualFold(o.GetKind(), kind) && o.GetName() == name
		}) {
			return "", fmt.Errorf("%s %s is not installed", kind, name)
		}
		return name, nil
	}
	rollout := regexp.MustCompile(`^-n ` + namespace + ` rollout status (\S+)$`).FindStringSubmatch(line)
	switch {
	case line == "apply -f nginx.yaml":
		return "", w.create("nginx.yaml")
	case line == "delete -f nginx.yaml":
		return "", w.remove("nginx.yaml")
	case strings.HasPrefix(line, "wait --for=condition=Ready ") && strings.HasSuffix(line, " pod/nginx"):
		if w.pods["nginx.yaml"] == nil {
			return "", errors.New("there is no such pod")
		}
		return "", nil
	case strings.HasPrefix(line, "wait --for=delete peerpods --all --all-namespaces "):
		return "", w.waitForNone()
	case line == "get runtimeclass kata-remote":
		return exists("RuntimeClass/kata-remote")
	case rollout != nil:
		return exists(rollout[1])
	case line == "get --raw /.well-known/openid-configuration":
		return `{"issuer": "` + clusterIssuer + `"}`, nil
	case line == "get nodes -o json" && w.site.nodes != "":
		return w.site.nodes, nil
	case line == "create namespace "+namespace:
		return "", nil
	case strings.HasPrefix(line, "-n "+namespace+" create secret generic "):
		for _, name := range strings.Split(flagsOf(args)["--from-file"], ",") {
			if _, err := w.file(name); err != nil {
				return "", err
			}
		}
		return "", nil
	case line == "label nodes --all node.kubernetes.io/worker=":
		return "", nil
	case line == "delete crd peerpods.confidentialcontainers.org podvmpools.confidentialcontainers.org", line == "delete namespace "+namespace:
		if w.objects != nil {
			return "", errors.New("it is still installed")
		}
		return "", nil
	}
	return "", errors.New("no page is known to need this command")
}

// flagsOf returns flags with their values; one without is "true", values of a repeated
// one are joined by commas.
func flagsOf(args []string) map[string]string {
	flags := map[string]string{}
	for i := 0; i < len(args); i++ {
		if !strings.HasPrefix(args[i], "-") {
			continue
		}
		name, value, joined := strings.Cut(args[i], "=")
		if !joined && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			i++
			value = args[i]
		} else if !joined {
			value = "true"
		}
		if flags[name] != "" {
			value = flags[name] + "," + value
		}
		flags[name] = value
	}
	return flags
}

// answer is what a tool of the site says. A command that it does not know is an error.
func (w *walk) answer(args []string) (string, error) {
	line := strings.Join(args[1:], " ")
	for _, a := range w.site.tools[args[0]] {
		if line != a.words && !strings.HasPrefix(line, a.words+" ") {
			continue
		}
		flags := flagsOf(args[1:])
		flags["--line"], flags["--last"] = line, args[len(args)-1]
		for name, want := range a.flags {
			if got, there := flags[name]; !there || want != "" && got != want {
				return "", fmt.Errorf("flag %s is %q, want %q", name, got, want)
			}
		}
		expand := func(text string) string {
			return os.Expand(text, func(name string) string { return cmp.Or(flags["--"+name], flags["-"+name]) })
		}
		if a.makes != "" {
			w.made = append(w.made, expand(a.makes))
		}
		if a.removes != "" {
			at := slices.Index(w.made, expand(a.removes))
			if at < 0 {
				return "", fmt.Errorf("%s is removed and was not made: there are %q", expand(a.removes), w.made)
			}
			w.made = slices.Delete(w.made, at, at+1)
		}
		if a.says == nil {
			return "", nil
		}
		return a.says(flags)
	}
	return "", errors.New("the page asks for what this test has no answer for")
}

// cloud returns the provider's manager with settings. Those of the site come first, as
// they are where the simulated cloud is.
func (w *walk) cloud(settings ...map[string]string) config.Configurable {
	manager := provider.Get(w.provider).(config.Configurable).Fresh()
	flags := flag.NewFlagSet(w.provider, flag.ContinueOnError)
	manager.ParseCmd(flags)
	if err := flags.Parse(w.site.flags); err != nil {
		w.t.Error(err)
	}
	manager.(interface{ LoadFrom(func(string) string) }).LoadFrom(func(name string) string {
		for _, values := range append([]map[string]string{w.site.env}, settings...) {
			if value := values[name]; value != "" {
				return cmp.Or(w.site.means[value], value)
			}
		}
		return ""
	})
	return manager
}

// use calls do with the provider that the installed adaptor has.
func (w *walk) use(do func(context.Context, provider.Provider) error) error {
	if w.objects == nil {
		return errors.New("nothing is installed")
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
	defer cancel()
	p, err := provider.Open(ctx, w.cloud(w.open, w.secret))
	if err != nil {
		return err
	}
	return errors.Join(do(ctx, p), p.Teardown())
}

// installed takes over what was rendered, and verifies it against the cloud as the
// adaptor does with CLOUD_CONFIG_VERIFY.
func (w *walk) installed(render []byte) error {
	w.objects = parse(w.t, render)
	w.open, w.secret = settings(w.t, w.objects)
	schema, err := schemaOf(w.open["CLOUD_PROVIDER"])
	if err != nil {
		return err
	}
	if err := check(schema, w.open, w.secret); err != nil {
		return err
	}
	if w.site.blind {
		return nil
	}
	return w.use(func(ctx context.Context, p provider.Provider) error { return provider.VerifyConfig(ctx, p) })
}

func (w *walk) uninstalled() error {
	if len(w.pods) > 0 {
		return errors.New("it is removed while pods run")
	}
	if w.objects == nil {
		return errors.New("nothing is installed")
	}
	w.objects = nil
	return nil
}

// make does what the targets do that pages use.
func (w *walk) make(args []string, env map[string]string) (string, error) {
	if strings.Join(args, " ") == "bin/outrigger bin/provider-"+w.provider {
		return "", nil
	}
	if env["CLOUD_PROVIDER"] != w.provider {
		return "", fmt.Errorf("CLOUD_PROVIDER is %q", env["CLOUD_PROVIDER"])
	}
	switch strings.Join(args, " ") {
	case "podvm-image":
		match := regexp.MustCompile(`bin/podvm/podvm-[a-z0-9.-]+`).FindString(strings.Join(commandsOf(w.t, w.page()), ""))
		if err := os.MkdirAll(filepath.Join(w.dir, "bin/podvm"), 0o755); err != nil {
			return "", err
		}
		return "", w.site.image(filepath.Join(w.dir, match))
	case "image image-qemu":
		if err := os.MkdirAll(filepath.Join(w.dir, "bin/images/cloud-api-adaptor"), 0o755); err != nil {
			return "", err
		}
		return "", nil
	case "image push":
		if env["REGISTRY"] == "" {
			return "", errors.New("REGISTRY is not set")
		}
		return "", nil
	case "deploy":
		return "", w.deploy(env)
	case "undeploy":
		return "", w.uninstalled()
	}
	return "", errors.New("no page is known to need this target")
}

// deploy renders what `make deploy` applies, with its own script.
func (w *walk) deploy(env map[string]string) error {
	kubectl := w.outside("kubectl", "shift; exec "+tool(w.t, "kustomize")+` build "$@"`)
	render := exec.Command("deploy/deploy.sh", "render", w.provider)
	render.Dir = w.dir
	render.Env = []string{"PATH=" + os.Getenv("PATH"), "KUBECTL=bash " + kubectl, "PREFIX=" + env["REGISTRY"], "NODE_INSTALLER=" + env["NODE_INSTALLER"]}
	out, err := render.Output()
	if err != nil {
		return err
	}
	return w.installed(out)
}

// helm renders what it would install.
func (w *walk) helm(args []string) (string, error) {
	switch args[0] {
	case "install":
		render := exec.Command(tool(w.t, "helm"), append([]string{"template", "--kube-version", kubeVersion}, slices.DeleteFunc(args[1:], func(a string) bool { return a == "--create-namespace" })...)...)
		render.Dir = w.dir
		out, err := render.Output()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			return "", fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		if err != nil {
			return "", err
		}
		return "", w.installed(out)
	case "uninstall":
		return "", w.uninstalled()
	}
	return "", errors.New("no page is known to need this command")
}

// outrigger imports images as the provider's own program does.
func (w *walk) outrigger(args []string, env map[string]string) (string, error) {
	flags := flagsOf(args)
	source := provider.ImageSource{Name: flags["--name"], Location: args[len(args)-1], Arch: "amd64"}
	if strings.Join(args[:2], " ") != "image import" || flags["--provider"] != w.provider {
		return "", errors.New("no page is known to need this command")
	}
	if !source.IsURL() {
		source.Location = filepath.Join(w.dir, source.Location)
	}
	var err error
	if source.Format, err = provider.ImageFormat(source.Location); err != nil {
		return "", err
	}
	if err := errors.Join(source.Check(), source.CheckFile()); err != nil {
		return "", err
	}
	before := w.site.called()
	manager := w.cloud(env).(interface {
		NewImporter(context.Context) (provider.Provider, error)
	})
	p, err := manager.NewImporter(w.t.Context())
	if err != nil {
		return "", err
	}
	importer, ok := provider.As[provider.ImageImporter](p)
	if !ok {
		return "", errors.New("the provider imports no images")
	}
	id, err := importer.ImportImage(w.t.Context(), source, func(provider.ImageProgress) {})
	for _, call := range w.site.called() {
		if !slices.Contains(before, call) {
			w.importing = append(w.importing, call)
		}
	}
	if !w.site.countsImages {
		w.made = append(w.made, "image "+id)
	}
	return id, errors.Join(err, p.Teardown())
}

// grantStatements notes what a policy of statements with actions allows.
func (w *walk) grantStatements(document string) error {
	var policy struct {
		Statement []struct {
			Effect string
			Action []string
		}
	}
	if err := json.Unmarshal([]byte(document), &policy); err != nil {
		return err
	}
	for _, s := range policy.Statement {
		if s.Effect != "Allow" {
			return fmt.Errorf("effect %q", s.Effect)
		}
		w.granted = append(w.granted, s.Action...)
	}
	return nil
}

// outside writes a file that is not of the page, such as a token, and returns its path.
func (w *walk) outside(name, content string) string {
	w.t.Helper()
	path := filepath.Join(w.t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// file returns the content of a file that the page has, by its file:// or its name.
func (w *walk) file(argument string) (string, error) {
	data, err := os.ReadFile(filepath.Join(w.dir, strings.TrimPrefix(strings.TrimPrefix(argument, "file://"), "@")))
	return string(data), err
}

// imageRemoved notes that an image is removed, whose id ends in its name.
func (w *walk) imageRemoved(name string) error {
	at := slices.IndexFunc(w.made, func(what string) bool { return strings.HasPrefix(what, "image ") && strings.HasSuffix(what, name) })
	if at < 0 {
		return fmt.Errorf("image %s was not made: there are %q", name, w.made)
	}
	w.made = slices.Delete(w.made, at, at+1)
	return nil
}

// sandbox is the pod's.
const sandbox = "0123456789abcdef0123456789abcdef"

// create makes the VM of a pod, as the adaptor does.
func (w *walk) create(file string) error {
	data, err := os.ReadFile(filepath.Join(w.dir, file))
	if err != nil {
		return err
	}
	pod := parse(w.t, data)[0]
	class, _, _ := unstructured.NestedString(pod.Object, "spec", "runtimeClassName")
	if !slices.ContainsFunc(w.objects, func(o *unstructured.Unstructured) bool { return id(o) == "RuntimeClass "+class }) {
		return fmt.Errorf("there is no RuntimeClass %q", class)
	}
	if w.site.blind {
		w.pods[file] = &provider.Instance{Name: "podvm-" + pod.GetName()}
		return nil
	}
	return w.use(func(ctx context.Context, p provider.Provider) error {
		instance, err := p.CreateInstance(ctx, pod.GetName(), sandbox, cloudinit.Raw("#cloud-config\n"), provider.InstanceTypeSpec{Tags: cloudsim.OwnerTags(sandbox)})
		if err == nil {
			w.pods[file] = instance
		}
		return err
	})
}

func (w *walk) remove(file string) error {
	instance := w.pods[file]
	if instance == nil {
		return errors.New("there is no such pod")
	}
	delete(w.pods, file)
	if w.site.blind {
		return nil
	}
	return w.use(func(ctx context.Context, p provider.Provider) error { return p.DeleteInstance(ctx, instance.ID) })
}

// instances are the names of those that the provider lists.
func (w *walk) instances() (names []string, err error) {
	err = w.use(func(ctx context.Context, p provider.Provider) error {
		lister, ok := provider.As[provider.Lister](p)
		if !ok {
			return errors.New("the provider lists no instances")
		}
		list, err := lister.ListInstances(ctx, map[string]string{provider.TagKey: sandbox})
		for _, i := range list {
			if i.State != provider.StateDeleting {
				names = append(names, i.Name)
			}
		}
		return err
	})
	return names, err
}

// waitForNone waits until the provider lists no instance.
func (w *walk) waitForNone() error {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		names, err := w.names(), error(nil)
		if !w.site.blind {
			names, err = w.instances()
		}
		if err != nil || len(names) == 0 {
			return err
		}
		if len(w.pods) > 0 || time.Now().After(deadline) {
			return fmt.Errorf("there are %q", names)
		}
	}
}

// nameLines says the names of the pods' VMs, each in a line.
func (w *walk) nameLines(map[string]string) (string, error) {
	text := ""
	for _, name := range w.names() {
		text += name + "\n"
	}
	return text, nil
}

// wantLast is an answer to a command whose last word must be want.
func wantLast(want string) func(map[string]string) (string, error) {
	return func(flags map[string]string) (string, error) {
		if flags["--last"] != want {
			return "", fmt.Errorf("the last word is %q, want %q", flags["--last"], want)
		}
		return "", nil
	}
}

// listed returns the names in backquotes of a generated part of a provider's page.
func listed(t *testing.T, provider, part string) (names []string) {
	t.Helper()
	_, rest, _ := strings.Cut(page(t, "providers/"+provider+".md"), "<!-- begin generated: "+part+" -->")
	text, _, _ := strings.Cut(rest, "<!-- end generated: "+part+" -->")
	for _, match := range regexp.MustCompile("`([^`\n]+)`").FindAllStringSubmatch(text, -1) {
		names = append(names, match[1])
	}
	if len(names) == 0 {
		t.Fatalf("the page of %s has no part %s", provider, part)
	}
	return names
}

// names are those of the VMs of the pods that were applied.
func (w *walk) names() (names []string) {
	for _, i := range w.pods {
		names = append(names, i.Name)
	}
	return names
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
			for _, want := range []string{"make podvm-image", "make image push", "kubectl get runtimeclass kata-remote", "kubectl apply -f nginx.yaml", "kubectl wait --for=condition=Ready", "kubectl delete -f nginx.yaml", "kubectl wait --for=delete peerpods"} {
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
