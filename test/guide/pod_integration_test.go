// SPDX-License-Identifier: Apache-2.0

//go:build integration

package guide

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pod is one that the test's kubelet runs.
type pod struct {
	*kubelet
	*corev1.Pod
	dir           string
	port, metrics string
	process       *os.Process
	ended         chan struct{}
	started       time.Time
	ready         bool
}

// errMissing is a ConfigMap or Secret that a pod waits for.
type errMissing struct{ error }

// ports are the arguments that replace those ports of a program.
func (p *pod) ports(program string) []string {
	if filepath.Base(program) == "ccm-operator" {
		return []string{"--health-addr=127.0.0.1:" + p.port, "--metrics-bind-address=127.0.0.1:" + p.metrics}
	}
	return []string{"--secure-port=" + p.port}
}

func (p *pod) log() string { return p.dir + ".log" }

func (p *pod) start(ctx context.Context) error {
	p.started, p.ready = time.Now(), false
	if err := os.RemoveAll(p.dir); err != nil {
		return err
	}
	image, err := p.pull(ctx, p.Spec.Containers[0].Image)
	if err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "cp", "--archive", "--link", image.dir, p.dir).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	binds, err := p.mounts(ctx)
	if err != nil {
		return err
	}
	env, err := p.environment(ctx)
	if err != nil {
		return err
	}
	return p.launch(image.entrypoint, binds, env)
}

// launch starts the container's program in the image's files. What is mounted
// there is seen by it alone, and goes with it.
func (p *pod) launch(entrypoint []string, binds [][2]string, env []string) error {
	script := "set -e\n"
	for _, b := range binds {
		at, err := inside(p.dir, b[1])
		if err != nil {
			return err
		}
		script += fmt.Sprintf("mkdir -p '%[2]s'; mount --bind '%[1]s' '%[2]s'\n", b[0], at)
	}
	chroot, err := exec.LookPath("chroot") // the pod has another PATH
	if err != nil {
		return err
	}
	c := p.Spec.Containers[0]
	args := append([]string{"--mount", "--propagation=private", "sh", "-c", script + `exec "$@"`, "sh", chroot}, p.user()...)
	if len(c.Command) > 0 {
		entrypoint = c.Command
	}
	args = slices.Concat(args, []string{p.dir}, entrypoint, c.Args, p.ports(entrypoint[0]))
	log, err := os.OpenFile(p.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command("unshare", args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	p.process, p.ended = cmd.Process, ended
	go func() { cmd.Wait(); close(ended) }()
	return nil
}

// inside returns where a path of a container is, whose links lead to its own root.
func inside(root, path string) (string, error) {
	at := root
	for part := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		at = filepath.Join(at, part)
		switch target, err := os.Readlink(at); {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.EINVAL): // to be made, or no link
		case err != nil:
			return "", err
		case !filepath.IsAbs(target):
			return "", fmt.Errorf("%s: the link to %s is relative", at, target)
		default:
			at = filepath.Join(root, target)
		}
	}
	return at, nil
}

func (p *pod) user() []string {
	s := p.Spec.Containers[0].SecurityContext
	if s == nil || s.RunAsUser == nil {
		return nil
	}
	id := strconv.FormatInt(*s.RunAsUser, 10)
	return []string{"--userspec=" + id + ":" + id}
}

func (p *pod) environment(ctx context.Context) ([]string, error) {
	env := []string{"PATH=/usr/local/bin:/usr/bin:/bin", "KUBERNETES_SERVICE_HOST=127.0.0.1", "KUBERNETES_SERVICE_PORT=" + p.api.Port()}
	c := p.Spec.Containers[0]
	for _, from := range c.EnvFrom {
		if from.SecretRef == nil {
			return nil, errors.New("only Secrets are known in envFrom")
		}
		data, err := p.secret(ctx, from.SecretRef.Name, from.SecretRef.Optional)
		if err != nil {
			return nil, err
		}
		for name, value := range data {
			env = append(env, name+"="+string(value))
		}
	}
	for _, v := range c.Env {
		if v.ValueFrom != nil {
			return nil, fmt.Errorf("variable %s: only values are known", v.Name)
		}
		env = append(env, v.Name+"="+v.Value)
	}
	return env, nil
}

func (p *pod) secret(ctx context.Context, name string, optional *bool) (map[string][]byte, error) {
	s, err := p.client.CoreV1().Secrets(p.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		if optional != nil && *optional {
			return nil, nil
		}
		return nil, errMissing{err}
	}
	if err != nil {
		return nil, err
	}
	return s.Data, nil
}

// stop ends the process as a kubelet does.
func (p *pod) stop() {
	if p.process == nil {
		return
	}
	p.process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(30 * time.Second):
		p.process.Kill()
		<-p.ended
	}
	p.process = nil
}

func (p *pod) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// lastWords are what FallbackToLogsOnError makes of a container's log.
func (p *pod) lastWords() string {
	text, err := os.ReadFile(p.log())
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-5):], []byte("\n")))
}

// probe is how kubelets ask: whose certificate it is does not matter.
var probe = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}

func (p *pod) answers() bool {
	get := p.Spec.Containers[0].ReadinessProbe.HTTPGet
	r, err := probe.Get(strings.ToLower(string(get.Scheme)) + "://127.0.0.1:" + p.port + get.Path)
	if err != nil {
		return false
	}
	r.Body.Close()
	return r.StatusCode == http.StatusOK
}

// tell writes the pod's status: that it runs, or with which last words it ended.
func (p *pod) tell(ctx context.Context, is *corev1.Pod, ready bool, words string) error {
	s := corev1.ContainerStatus{Name: is.Spec.Containers[0].Name, Image: is.Spec.Containers[0].Image, Ready: ready}
	status, now := corev1.ConditionFalse, metav1.Now()
	if ready {
		status, s.State.Running = corev1.ConditionTrue, &corev1.ContainerStateRunning{StartedAt: now}
	} else {
		p.Logf("pod %s ended: %s", is.Name, words)
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
		s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, Message: words}
	}
	is.Status.Phase, is.Status.ContainerStatuses = corev1.PodRunning, []corev1.ContainerStatus{s}
	is.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
	for _, kind := range []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		is.Status.Conditions = append(is.Status.Conditions, corev1.PodCondition{Type: kind, Status: status, LastTransitionTime: now})
	}
	_, err := p.client.CoreV1().Pods(is.Namespace).UpdateStatus(ctx, is, metav1.UpdateOptions{})
	return err
}
