//! Weights of servers that stand in the place of others.

/// Servers with their weights in their target. Each part has a weight, which its servers share by weights of their own, and
/// has at least one server. One of them with the weight 0 gets hardly any requests beside others (RFC 2782).
pub(super) fn weighted<T>(parts: Vec<(u16, Vec<(T, u16)>)>) -> Vec<(T, u16)> {
    let own = |weight: u16| u64::from(weight.max(1));
    let is_one = parts.len() == 1;
    let largest = parts.iter().map(|(weight, _)| *weight).max();
    let scale = u64::from(u16::MAX) / own(largest.unwrap_or_default());
    let mut all = Vec::new();
    for (weight, servers) in parts {
        let total: u64 = servers.iter().map(|(_, weight)| own(*weight)).sum();
        all.extend(servers.into_iter().map(|(server, of_server)| {
            let share = match weight {
                0 => 0,
                // Their own weights are exact.
                _ if is_one => own(of_server),
                _ => (u64::from(weight) * scale * own(of_server) / total).max(1),
            };
            (server, u16::try_from(share).unwrap_or(u16::MAX))
        }));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_a_service_share_its_weight() {
        let part = |weight, own: &[u16]| (weight, own.iter().map(|own| ((), *own)).collect());
        let weights = |parts: Vec<(u16, Vec<((), u16)>)>| -> Vec<u16> {
            weighted(parts)
                .into_iter()
                .map(|((), weight)| weight)
                .collect()
        };
        assert_eq!(weights(vec![part(7, &[5, 0, 60_000])]), [5, 1, 60_000]);
        assert_eq!(weights(vec![part(1, &[0, 0])]), [1, 1]);
        let mixed = weights(vec![part(3, &[1, 2]), part(1, &[0]), part(0, &[1, 1])]);
        assert_eq!(mixed, [21_845, 43_690, 21_845, 0, 0]);
        let many = weights(vec![part(1, &[1; 256]), part(1000, &[1])]);
        assert_eq!((many[0], many[256]), (1, 65_000));
    }
}
