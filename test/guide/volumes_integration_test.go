// SPDX-License-Identifier: Apache-2.0

//go:build integration

package guide

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// mounts returns which folders of this machine are where in the pod.
func (p *pod) mounts(ctx context.Context) ([][2]string, error) {
	binds := [][2]string{{"/proc", "/proc"}, {"/dev", "/dev"}}
	sources := map[string]string{}
	for _, v := range p.Spec.Volumes {
		folder := filepath.Join(p.dir+".volumes", v.Name)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, err
		}
		sources[v.Name] = folder
		var err error
		if v.HostPath != nil {
			sources[v.Name] = v.HostPath.Path
		} else if v.EmptyDir == nil {
			err = p.fill(ctx, v, folder)
		}
		if err != nil {
			return nil, fmt.Errorf("volume %s: %w", v.Name, err)
		}
	}
	for _, m := range p.Spec.Containers[0].VolumeMounts {
		binds = append(binds, [2]string{sources[m.Name], m.MountPath})
	}
	return binds, nil
}

// fill writes the files of a volume.
func (p *pod) fill(ctx context.Context, v corev1.Volume, folder string) error {
	switch {
	case v.ConfigMap != nil:
		data, err := p.configMap(ctx, v.ConfigMap.Name, v.ConfigMap.Optional)
		if err != nil {
			return err
		}
		return write(folder, items(data, v.ConfigMap.Items))
	case v.Secret != nil:
		data, err := p.secret(ctx, v.Secret.SecretName, v.Secret.Optional)
		if err != nil {
			return err
		}
		texts := map[string]string{}
		for key, value := range data {
			texts[key] = string(value)
		}
		return write(folder, items(texts, v.Secret.Items))
	case v.Projected != nil:
		return p.project(ctx, v.Projected.Sources, folder)
	}
	return fmt.Errorf("its kind is not known here")
}

// project writes what is projected; what the API server injects is of this kind.
func (p *pod) project(ctx context.Context, sources []corev1.VolumeProjection, folder string) error {
	for _, s := range sources {
		switch {
		case s.ServiceAccountToken != nil:
			token, err := p.token(p.Namespace, p.Spec.ServiceAccountName, s.ServiceAccountToken.Audience)
			if err != nil {
				return err
			}
			if err := write(folder, map[string]string{s.ServiceAccountToken.Path: token}); err != nil {
				return err
			}
		case s.ConfigMap != nil:
			data, err := p.configMap(ctx, s.ConfigMap.Name, s.ConfigMap.Optional)
			if err != nil {
				return err
			}
			if err := write(folder, items(data, s.ConfigMap.Items)); err != nil {
				return err
			}
		case s.DownwardAPI != nil: // the API server asks for the namespace
			if err := write(folder, map[string]string{s.DownwardAPI.Items[0].Path: p.Namespace}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *pod) configMap(ctx context.Context, name string, optional *bool) (map[string]string, error) {
	cm, err := p.client.CoreV1().ConfigMaps(p.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && optional != nil && *optional:
		return nil, nil
	case apierrors.IsNotFound(err):
		return nil, errMissing{err}
	case err != nil:
		return nil, err
	}
	return cm.Data, nil
}

// items are the files that keys become.
func items(data map[string]string, chosen []corev1.KeyToPath) map[string]string {
	if len(chosen) == 0 {
		return data
	}
	files := map[string]string{}
	for _, i := range chosen {
		if text, has := data[i.Key]; has {
			files[i.Path] = text
		}
	}
	return files
}

func write(folder string, files map[string]string) error {
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
