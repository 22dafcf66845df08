import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;

/**
 * Alters and describes client quotas with Kafka's own AdminClient, one job for each line of
 * standard input. The jobs and their results are those of benchmarks/competitors/jobs.py.
 */
public final class QuotaPeer {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Admin admin;

    private QuotaPeer(Admin admin) {
        this.admin = admin;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream results = System.out;
        System.setOut(System.err); // where logging goes
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            var peer = new QuotaPeer(admin);
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                results.println(JSON.writeValueAsString(peer.answer(line)));
                results.flush();
            }
        }
    }

    private Map<String, Object> answer(String line) {
        try {
            JsonNode job = JSON.readTree(line);
            return job.get("do").asText().equals("describe") ? describe() : alter(job);
        } catch (Exception error) {
            return Map.of("error", error.toString());
        }
    }

    private Map<String, Object> describe() throws Exception {
        long begun = System.nanoTime();
        var quotas = admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get();
        return result(begun, System.nanoTime(), quotas.size());
    }

    private Map<String, Object> alter(JsonNode job) throws Exception {
        List<ClientQuotaAlteration> alterations = alterations(job);
        long begun = System.nanoTime();
        admin.alterClientQuotas(alterations).all().get();
        return result(begun, System.nanoTime(), alterations.size());
    }

    private static List<ClientQuotaAlteration> alterations(JsonNode job) {
        List<ClientQuotaAlteration.Op> ops = new ArrayList<>();
        for (var one : job.get("values").properties()) {
            ops.add(new ClientQuotaAlteration.Op(one.getKey(), one.getValue().asDouble()));
        }
        List<ClientQuotaAlteration> all = new ArrayList<>();
        for (JsonNode names : job.get("entities")) {
            Map<String, String> entity = new HashMap<>();
            for (var one : names.properties()) {
                entity.put(one.getKey(), one.getValue().asText());
            }
            all.add(new ClientQuotaAlteration(new ClientQuotaEntity(entity), ops));
        }
        return all;
    }

    private static Map<String, Object> result(long begun, long ended, int entities) {
        return Map.of("ms", (ended - begun) / 1e6, "entities", entities);
    }
}
