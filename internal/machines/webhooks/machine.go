// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
)

const (
	dockerPrefix    = "docker:////"
	outriggerPrefix = "outrigger://"

	// dockerSocket is where a Docker Engine listens.
	dockerSocket = "/var/run/docker.sock"

	// longestBootstrap is more than any start of Kubernetes takes.
	longestBootstrap = 24 * time.Hour

	// ownTags is what the names of tags begin with by which things are found.
	ownTags = "outrigger-"
)

// leastMemory is what a Docker Engine lets a container have.
var leastMemory = resource.MustParse("6Mi")

func validDockerMachine(s *infrav1.DockerMachineSpec, p *field.Path, template bool) (admission.Warnings, field.ErrorList) {
	warnings, errs := validDockerNode(&s.DockerNodeSpec, p)
	return warnings, append(validProviderID(s.ProviderID, dockerPrefix, p, template), errs...)
}

func validDockerPool(s *infrav1.DockerMachinePoolSpec, p *field.Path, template bool) (admission.Warnings, field.ErrorList) {
	warnings, errs := validDockerNode(&s.Template, p.Child("template"))
	if template && len(s.ProviderIDList) > 0 {
		errs = append(errs, field.Forbidden(p.Child("providerIDList"), "belongs to a pool, not to what pools are made from"))
	}
	return warnings, append(validProviderID(s.ProviderID, "", p, template), errs...)
}

func validOutriggerMachine(s *infrav1.OutriggerMachineSpec, p *field.Path, template bool) (admission.Warnings, field.ErrorList) {
	return nil, append(validProviderID(s.ProviderID, outriggerPrefix, p, template), validInstance(s, p)...)
}

func validProviderID(id, prefix string, p *field.Path, template bool) field.ErrorList {
	p = p.Child("providerID")
	switch {
	case id == "":
		return nil
	case template:
		return field.ErrorList{field.Forbidden(p, "belongs to a machine, not to what machines are made from")}
	case prefix == "" || len(id) > len(prefix) && strings.HasPrefix(id, prefix):
		return nil
	}
	return field.ErrorList{field.Invalid(p, id, "is none of these machines, which begin with "+prefix)}
}

// keepsProviderID: the providerID of a spec never changes once it is set.
func keepsProviderID[S any](of func(*S) string) func(before, after *S, p *field.Path) field.ErrorList {
	return func(before, after *S, p *field.Path) field.ErrorList {
		if of(before) == "" || of(before) == of(after) {
			return nil
		}
		return fixedField(p.Child("providerID"), of(after), "the Node is known by it")
	}
}

func validDockerNode(s *infrav1.DockerNodeSpec, p *field.Path) (admission.Warnings, field.ErrorList) {
	errs := validImage(s.CustomImage, p.Child("customImage"))
	for i, image := range s.PreLoadImages {
		errs = append(errs, validImage(image, p.Child("preLoadImages").Index(i))...)
	}
	if t := s.BootstrapTimeout; t != nil && (t.Duration <= 0 || t.Duration > longestBootstrap) {
		errs = append(errs, field.Invalid(p.Child("bootstrapTimeout"), t.Duration.String(), "is to be between 1ns and 24h"))
	}
	errs = append(errs, validResources(s.Resources, p.Child("resources"))...)
	warnings, wrong := validMounts(s.ExtraMounts, p.Child("extraMounts"))
	return warnings, append(errs, wrong...)
}

func validImage(image string, p *field.Path) field.ErrorList {
	if image == "" {
		return nil
	}
	if _, err := name.ParseReference(image); err != nil {
		return field.ErrorList{field.Invalid(p, image, "is not the name of an image: "+err.Error())}
	}
	return nil
}

func validResources(r infrav1.DockerResources, p *field.Path) (errs field.ErrorList) {
	if r.CPU != nil && r.CPU.Sign() <= 0 {
		errs = append(errs, field.Invalid(p.Child("cpu"), r.CPU.String(), "is to be more than 0"))
	}
	if r.Memory != nil && r.Memory.Cmp(leastMemory) < 0 {
		errs = append(errs, field.Invalid(p.Child("memory"), r.Memory.String(), "is to be at least 6Mi, below which Docker makes no container"))
	}
	return errs
}

func validMounts(mounts []infrav1.Mount, p *field.Path) (warnings admission.Warnings, errs field.ErrorList) {
	taken := map[string]bool{}
	for i, m := range mounts {
		p := p.Index(i)
		errs = append(errs, validPath(m.HostPath, p.Child("hostPath"))...)
		errs = append(errs, validPath(m.ContainerPath, p.Child("containerPath"))...)
		inside := path.Clean(m.ContainerPath)
		if inside == "/" {
			errs = append(errs, field.Invalid(p.Child("containerPath"), m.ContainerPath, "would hide the whole node image"))
		}
		if taken[inside] {
			errs = append(errs, field.Duplicate(p.Child("containerPath"), m.ContainerPath))
		}
		taken[inside] = true
		if path.Clean(m.HostPath) == dockerSocket {
			warnings = append(warnings, fmt.Sprintf("%s: whoever is root in the machine controls the Docker Engine and its host", p))
		}
	}
	return warnings, errs
}

func validPath(s string, p *field.Path) field.ErrorList {
	if path.IsAbs(s) {
		return nil
	}
	return field.ErrorList{field.Invalid(p, s, "is to be an absolute path")}
}

func validInstance(s *infrav1.OutriggerMachineSpec, p *field.Path) (errs field.ErrorList) {
	if s.Memory != nil && s.Memory.Sign() <= 0 {
		errs = append(errs, field.Invalid(p.Child("memory"), s.Memory.String(), "is to be more than 0"))
	}
	for key := range s.Tags {
		switch p := p.Child("tags").Key(key); {
		case key == "":
			errs = append(errs, field.Invalid(p, key, "a tag is to have a name"))
		case strings.HasPrefix(strings.ToLower(key), ownTags):
			errs = append(errs, field.Forbidden(p, "names that begin with "+ownTags+" are those by which the machine is found"))
		}
	}
	return errs
}
