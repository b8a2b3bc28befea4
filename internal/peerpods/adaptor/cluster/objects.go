// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The parts of core/v1 objects that are read here. What is written is written
// by patches, so the other parts stay as they are.

type pod struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		NodeName         string      `json:"nodeName"`
		ImagePullSecrets []localName `json:"imagePullSecrets"`
	} `json:"spec"`
}

type localName struct {
	Name string `json:"name"`
}

type secret struct {
	Type string            `json:"type"`
	Data map[string][]byte `json:"data"`
}

type node struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Status   struct {
		Capacity map[string]string `json:"capacity"`
	} `json:"status"`
}

// event is a whole core/v1 Event.
type event struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   metav1.ObjectMeta `json:"metadata"`

	InvolvedObject objectReference `json:"involvedObject"`
	Reason         string          `json:"reason"`
	Message        string          `json:"message"`
	Type           string          `json:"type"`
	Source         eventSource     `json:"source"`
	FirstTimestamp metav1.Time     `json:"firstTimestamp"`
	LastTimestamp  metav1.Time     `json:"lastTimestamp"`
	Count          int             `json:"count"`

	ReportingComponent string `json:"reportingComponent"`
	ReportingInstance  string `json:"reportingInstance"`
}

type objectReference struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
}

type eventSource struct {
	Component string `json:"component"`
	Host      string `json:"host"`
}
