import java.util.EnumMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.common.utils.Sanitizer;
import org.apache.kafka.server.quota.ClientQuotaEntity;
import org.apache.kafka.server.quota.ClientQuotaEntity.ConfigEntity;
import org.apache.kafka.server.quota.ClientQuotaType;

/**
 * What brokers do without a callback: the eight levels, for the two callbacks beside it.
 *
 * Kafka's own class is not public. One difference: the tags of a caller without any limit.
 */
final class KafkaRules {
    static final String USER = "user";
    static final String CLIENT_ID = "client-id";

    private record Names(Name user, Name clientId) { }

    private record Name(String text, boolean isDefault) { }

    private static final Name DEFAULT = new Name("", true);
    private static final Name[] ABSENT = {null};

    private final Map<ClientQuotaType, Map<Names, Double>> stored = new EnumMap<>(ClientQuotaType.class);

    KafkaRules() {
        for (ClientQuotaType type : ClientQuotaType.values()) stored.put(type, new ConcurrentHashMap<>());
    }

    void update(ClientQuotaType type, ClientQuotaEntity entity, Double value) {
        Name user = null, clientId = null;
        for (ConfigEntity part : entity.configEntities()) {
            switch (part.entityType()) {
                case USER -> user = new Name(part.name(), false);
                case CLIENT_ID -> clientId = new Name(part.name(), false);
                case DEFAULT_USER -> user = DEFAULT;
                case DEFAULT_CLIENT_ID -> clientId = DEFAULT;
            }
        }
        Names names = new Names(user, clientId);
        if (value == null) stored.get(type).remove(names);
        else stored.get(type).put(names, value);
    }

    /** The value of exactly these names; null for a type that the entity has not. */
    Double value(ClientQuotaType type, String user, String clientId) {
        return stored.get(type).get(new Names(named(user), named(clientId)));
    }

    /** The first level with a value, of those that bear a user, decides who shares the limit. */
    Map<String, String> tags(ClientQuotaType type, String user, String clientId) {
        for (Name u : new Name[] {named(user), DEFAULT}) {
            if (first(type, new Name[] {u}, new Name[] {named(clientId), DEFAULT}) != null) return tagged(user, clientId);
            if (first(type, new Name[] {u}, ABSENT) != null) return tagged(user, "");
        }
        return tagged("", clientId);
    }

    Double limit(ClientQuotaType type, Map<String, String> tags) {
        String user = Sanitizer.desanitize(tags.get(USER)), clientId = tags.get(CLIENT_ID);
        return first(type, user.isEmpty() ? ABSENT : orDefault(user), clientId.isEmpty() ? ABSENT : orDefault(clientId));
    }

    private Double first(ClientQuotaType type, Name[] users, Name[] clientIds) {
        Map<Names, Double> values = stored.get(type);
        for (Name user : users) {
            for (Name clientId : clientIds) {
                Double value = values.get(new Names(user, clientId));
                if (value != null) return value;
            }
        }
        return null;
    }

    private static Name[] orDefault(String name) {
        return new Name[] {named(name), DEFAULT};
    }

    private static Name named(String name) {
        return name == null ? null : new Name(name, false);
    }

    private static Map<String, String> tagged(String user, String clientId) {
        return Map.of(USER, Sanitizer.sanitize(user), CLIENT_ID, clientId);
    }
}
