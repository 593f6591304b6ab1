"""The routing procedures as nested loops over NumPy float64, straight from the papers' formulas.

Shares no code with capsjax. Every function takes one example; votes[i, j] is
the vote of child i for parent j.
"""

import math

import numpy as np


def softmax(logits):
    exponentials = [math.exp(b - max(logits)) for b in logits]
    return [e / sum(exponentials) for e in exponentials]


def squash(s):
    squared = sum(x * x for x in s)
    if squared == 0:
        return np.zeros(len(s))
    return np.array([squared / (1 + squared) * x / math.sqrt(squared) for x in s])


# Large: with a LayerNorm's usual 1e-5 a vector of two nearly equal numbers is spread 300 times,
# and so is float32's rounding of their difference.
EPSILON = 0.1


def standardize(s):
    mean = sum(s) / len(s)
    variance = sum((x - mean) ** 2 for x in s) / len(s)
    return np.array([(x - mean) / math.sqrt(variance + EPSILON) for x in s])


def linear_votes(poses, kernel):
    children, rows, columns = poses.shape
    shared, _, parents, size = kernel.shape
    votes = np.zeros((children, parents, rows * size))
    for i in range(children):
        for j in range(parents):
            for a in range(rows):
                for y in range(size):
                    for x in range(columns):
                        w = kernel[0 if shared == 1 else i, x, j, y]
                        votes[i, j, a * size + y] += poses[i, a, x] * w
    return votes


def weighted_sum(coupling, votes, j):
    children, _, size = votes.shape
    s = np.zeros(size)
    for i in range(children):
        for d in range(size):
            s[d] += coupling[i][j] * votes[i, j, d]
    return s


def dynamic(votes, iterations, logits, bias, rate, leaky):
    children, parents, size = votes.shape
    b = np.array(logits, np.float64)
    c = np.full((children, parents), 1 / (parents + leaky))
    p = np.zeros((parents, size))
    for _ in range(iterations):
        for i in range(children):
            routed = softmax([*b[i], 0.0])[:-1] if leaky else softmax(list(b[i]))
            for j in range(parents):
                c[i, j] = rate * routed[j] + (1 - rate) * c[i, j]
        for j in range(parents):
            p[j] = squash(weighted_sum(c, votes, j) + bias[j])
        for i in range(children):
            for j in range(parents):
                for d in range(size):
                    b[i, j] += votes[i, j, d] * p[j, d]
    return p, c


def inverted_attention(votes, iterations, scale=None):
    children, parents, size = votes.shape
    p = np.zeros((parents, size))
    for _ in range(iterations):
        r = np.zeros((children, parents))
        for i in range(children):
            a = [0.0] * parents
            for j in range(parents):
                for d in range(size):
                    a[j] += p[j, d] * votes[i, j, d]
            r[i] = softmax([x / math.sqrt(size) if scale is None else x * scale for x in a])
        p = np.array([standardize(weighted_sum(r, votes, j)) for j in range(parents)])
    return p, r


def em(votes, activations, beta_use, beta_activate, iterations, floor):
    children, parents, size = votes.shape
    responsibility = np.full((children, parents), 1 / parents)
    for t in range(iterations):
        mean, variance = np.zeros((parents, size)), np.zeros((parents, size))
        active = np.zeros(parents)
        for j in range(parents):
            weight = [responsibility[i, j] * activations[i] for i in range(children)]
            cost = 0.0
            for d in range(size):
                for i in range(children):
                    mean[j, d] += weight[i] * votes[i, j, d] / sum(weight)
                for i in range(children):
                    variance[j, d] += weight[i] * (votes[i, j, d] - mean[j, d]) ** 2 / sum(weight)
                variance[j, d] += floor
                cost += (beta_use[j] + 0.5 * math.log(variance[j, d])) * sum(weight)
            temperature = 0.01 * (1 - 0.95 ** (t + 1))
            active[j] = 1 / (1 + math.exp(-temperature * (beta_activate[j] - cost)))
        used = responsibility.copy()
        for i in range(children):
            logits = []
            for j in range(parents):
                log_p = 0.0
                for d in range(size):
                    log_p -= (votes[i, j, d] - mean[j, d]) ** 2 / (2 * variance[j, d])
                    log_p -= 0.5 * math.log(variance[j, d]) + 0.5 * math.log(2 * math.pi)
                logits.append(math.log(active[j]) + log_p)
            responsibility[i] = softmax(logits)
    return mean, used, active


def attention(transformed, kernel):
    channels, size = transformed.shape
    b = [0.0] * channels
    for m in range(channels):
        for n in range(channels):
            for d in range(size):
                b[m] += kernel[d, n, m] * transformed[n, d]
    c = softmax(b)
    s = np.zeros(size)
    for m in range(channels):
        for d in range(size):
            s[d] += c[m] * transformed[m, d]
    return s, np.array(c)


def self_attention(votes, prior):
    children, parents, size = votes.shape
    c = np.zeros((children, parents))
    for i in range(children):
        a = [0.0] * parents
        for j in range(parents):
            for k in range(children):
                for d in range(size):
                    a[j] += votes[i, j, d] * votes[k, j, d] / math.sqrt(size)
        c[i] = softmax(a)
        for j in range(parents):
            c[i, j] += prior[i, j]
    p = np.zeros((parents, size))
    for j in range(parents):
        s = weighted_sum(c, votes, j)
        length = math.sqrt(sum(x * x for x in s))
        for d in range(size):
            p[j, d] = (1 - math.exp(-length)) * s[d] / length
    return p, c


def slot_attention(inputs, queries, key_kernel, value_kernel, mask, epsilon=1e-8):
    keys, values = inputs @ key_kernel, inputs @ value_kernel
    a = np.zeros((len(inputs), len(queries)))
    for n in range(len(inputs)):
        dots = [sum(keys[n] * q) / math.sqrt(len(q)) for q in queries]
        a[n] = mask[n] * np.array(softmax(dots))
    p = np.zeros((len(queries), values.shape[1]))
    for j in range(len(queries)):
        for n in range(len(inputs)):
            p[j] += a[n, j] * values[n] / (sum(a[:, j]) + epsilon)
    return p, a
