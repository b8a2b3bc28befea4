// SPDX-License-Identifier: Apache-2.0

// Package command is the command line of ccm-operator.
package command
