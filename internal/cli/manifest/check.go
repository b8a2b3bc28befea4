// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
)

// check looks at values, and that what the pod refers to is there.
func (p *Pod) check() error {
	var errs []error
	if p.Name == "" || len(p.Spec.Containers) == 0 {
		errs = append(errs, errors.New("a Pod needs metadata.name and spec.containers"))
	}
	if policy := p.Spec.RestartPolicy; !slices.Contains([]corev1.RestartPolicy{"", "Always", "OnFailure", "Never"}, policy) {
		errs = append(errs, fmt.Errorf("spec.restartPolicy: %q is not Always, OnFailure or Never", policy))
	}
	if policy := p.Spec.DNSPolicy; !slices.Contains([]corev1.DNSPolicy{"", corev1.DNSClusterFirst, corev1.DNSDefault}, policy) {
		errs = append(errs, fmt.Errorf("spec.dnsPolicy: %q has no effect here; remove it", policy))
	}
	for field, name := range map[string]string{"metadata.name": p.Name, "spec.hostname": p.Spec.Hostname} {
		if name != "" && len(validation.IsDNS1123Label(name)) > 0 {
			errs = append(errs, fmt.Errorf("%s: %q: want at most 63 of a-z, 0-9 and -, with a letter or digit at both ends", field, name))
		}
	}
	names := map[string]bool{}
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		at := "container " + c.Name + ": "
		if names[c.Name] || c.Name == "" || c.Image == "" {
			errs = append(errs, errors.New(at+"want a name of its own and an image"))
		}
		names[c.Name] = true
		if p := c.ImagePullPolicy; p != "" && p != corev1.PullAlways && p != corev1.PullIfNotPresent && p != corev1.PullNever {
			errs = append(errs, fmt.Errorf("%simagePullPolicy: %q is not Always, IfNotPresent or Never", at, p))
		}
		_, err := p.Env(c, map[string]string{})
		errs = append(errs, wrap(at, err))
		for _, m := range c.VolumeMounts {
			_, err := p.Files(m)
			errs = append(errs, wrap(at, err))
		}
	}
	return errors.Join(append(errs, p.checkVolumes(), p.checkProbes())...)
}

func wrap(at string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s%w", at, err)
}

// checkVolumes looks at what volumes are, and that none is to be shared that cannot be: each mount of a hostPath would
// be a copy of its own.
func (p *Pod) checkVolumes() error {
	var errs []error
	for i, v := range p.Spec.Volumes {
		at := fmt.Sprintf("spec.volumes[%d].", i)
		if e := v.EmptyDir; e != nil && e.Medium != corev1.StorageMediumDefault && e.Medium != corev1.StorageMediumMemory {
			errs = append(errs, fmt.Errorf("%semptyDir.medium: %q is not Memory", at, e.Medium))
		} else if e != nil && e.Medium == corev1.StorageMediumDefault && e.SizeLimit != nil {
			errs = append(errs, errors.New(at+"emptyDir.sizeLimit: it needs medium: Memory"))
		}
		if v.HostPath == nil {
			continue
		}
		if !filepath.IsAbs(v.HostPath.Path) {
			errs = append(errs, fmt.Errorf("%shostPath.path: %q is not an absolute path", at, v.HostPath.Path))
		}
		mounts := 0
		for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
			mounts += len(slices.DeleteFunc(slices.Clone(c.VolumeMounts), func(m corev1.VolumeMount) bool { return m.Name != v.Name }))
		}
		if mounts > 1 {
			errs = append(errs, fmt.Errorf("%shostPath: volume %q is mounted %d times, and each would be a copy of its own", at, v.Name, mounts))
		}
	}
	return errors.Join(errs...)
}

func (p *Pod) checkProbes() error {
	var errs []error
	for i, c := range p.Spec.Containers {
		at := fmt.Sprintf("spec.containers[%d].", i)
		errs = append(errs, wrap(at+"startupProbe", checkProbe(c, c.StartupProbe, true)),
			wrap(at+"livenessProbe", checkProbe(c, c.LivenessProbe, true)), wrap(at+"readinessProbe", checkProbe(c, c.ReadinessProbe, false)))
	}
	return errors.Join(errs...)
}

// checkProbe refuses what the API server does. once says that one success has to be enough.
func checkProbe(c corev1.Container, probe *corev1.Probe, once bool) error {
	if probe == nil {
		return nil
	}
	var errs []error
	for field, value := range map[string]int32{
		"initialDelaySeconds": probe.InitialDelaySeconds, "periodSeconds": probe.PeriodSeconds, "timeoutSeconds": probe.TimeoutSeconds,
		"failureThreshold": probe.FailureThreshold, "successThreshold": probe.SuccessThreshold,
	} {
		if value < 0 {
			errs = append(errs, fmt.Errorf(".%s: %d is negative", field, value))
		}
	}
	if once && probe.SuccessThreshold > 1 {
		errs = append(errs, errors.New(".successThreshold: want 1"))
	}
	if probe.HTTPGet != nil {
		errs = append(errs, wrap(".httpGet", checkPort(c, probe.HTTPGet.Port)))
	}
	if probe.TCPSocket != nil {
		errs = append(errs, wrap(".tcpSocket", checkPort(c, probe.TCPSocket.Port)))
	}
	one := []bool{probe.Exec != nil && len(probe.Exec.Command) > 0, probe.HTTPGet != nil, probe.TCPSocket != nil}
	if len(slices.DeleteFunc(one, func(is bool) bool { return !is })) != 1 {
		errs = append(errs, errors.New(": want one of exec.command, httpGet and tcpSocket"))
	}
	return errors.Join(errs...)
}

func checkPort(c corev1.Container, port intstr.IntOrString) error {
	if number := Port(c, port); number < 1 || number > 65535 {
		return fmt.Errorf(".port: %s is not a port of the container", port.String())
	}
	return nil
}

// Port returns a port of a container that is given by number or name; 0 if there is none of that name.
func Port(c corev1.Container, port intstr.IntOrString) int {
	if port.Type == intstr.Int {
		return port.IntValue()
	}
	for _, named := range c.Ports {
		if named.Name == port.StrVal {
			return int(named.ContainerPort)
		}
	}
	return port.IntValue()
}
